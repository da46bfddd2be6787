import numpy as np
from case import Family
from onnx import numpy_helper

f = Family("ml_prep")
ML = {"domain": "ai.onnx.ml"}
rng = np.random.default_rng(0)
f32, i64, i32 = np.float32, np.int64, np.int32
TYPES = (np.float32, np.float64, np.int32, np.int64)
x = (rng.standard_normal((5, 4)) * 4).astype(f32)
x[1, 2] = 0

# ArrayFeatureExtractor
at = np.array([2, 0, 3], i64)
for t in TYPES:
    f.case("ArrayFeatureExtractor", 1, [x.astype(t), at], const=(1,), **ML)
f.case("ArrayFeatureExtractor", 1, [x, at], **ML)
f.case("ArrayFeatureExtractor", 1, [x[0], at], **ML)
f.case("ArrayFeatureExtractor", 1, [rng.standard_normal((2, 3, 4)).astype(f32), at[:1]], **ML)
f.fails("ArrayFeatureExtractor", 1, [x, np.array([4], i64)], why="out of range", **ML)

# Binarizer: ONNX Runtime has it for float32
for t in TYPES:
    for limit in (0.0, 1.5, -1.5):
        v = x.astype(t)
        f.case("Binarizer", 1, [v], attrs={"threshold": limit}, want=[(v > limit).astype(t)], **ML)
f.case("Binarizer", 1, [x], **ML)
f.case("Binarizer", 1, [np.array([np.nan, np.inf, -np.inf, 1.0], f32)], attrs={"threshold": 1.0}, want=[np.array([0, 1, 0, 0], f32)], **ML)
f.case("Binarizer", 1, [np.zeros((0, 3), f32)], **ML)
f.declines("Binarizer", 1, [x.astype(i64)], attrs={"threshold": 1e12}, why="threshold", **ML)

# FeatureVectorizer
for t in TYPES:
    f.case("FeatureVectorizer", 1, [x.astype(t), x[:, :2].astype(t)], attrs={"inputdimensions": [4, 2]}, **ML)
f.case("FeatureVectorizer", 1, [x[0], x[1]], attrs={"inputdimensions": [4, 4]}, **ML)
f.case("FeatureVectorizer", 1, [x, x], attrs={"inputdimensions": [3, 6]}, **ML)
f.declines("FeatureVectorizer", 1, [x, x], attrs={"inputdimensions": [4]}, why="1 inputdimensions for 2 inputs", **ML)
f.fails("FeatureVectorizer", 1, [x, x[:2]], attrs={"inputdimensions": [4, 4]}, why="differ in their rows", **ML)

# Imputer: ONNX Runtime has it for float32 and int64
gaps = x.copy()
gaps[0, 1] = gaps[3, 3] = np.nan
for t in (f32, np.float64):
    v = gaps.astype(t)
    f.case("Imputer", 1, [v], attrs={"imputed_value_floats": [7.5], "replaced_value_float": float("nan")}, want=[np.where(np.isnan(v), t(7.5), v)], **ML)
f.case("Imputer", 1, [gaps], attrs={"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}, **ML)
f.case("Imputer", 1, [gaps], attrs={"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": 0.0}, **ML)
f.case("Imputer", 1, [gaps[0]], attrs={"imputed_value_floats": [1.0], "replaced_value_float": float("nan")}, **ML)
whole = np.array([[1, -1, 3], [2 ** 40, 2 ** 40 + 1, -1]], i64)
f.case("Imputer", 1, [whole], attrs={"imputed_value_int64s": [5, 6, 7], "replaced_value_int64": -1}, **ML)
f.case("Imputer", 1, [whole], attrs={"imputed_value_int64s": [5], "replaced_value_int64": 2 ** 40}, **ML)
f.case("Imputer", 1, [np.array([[1, -1]], i32)], attrs={"imputed_value_int64s": [5], "replaced_value_int64": -1}, want=[np.array([[1, 5]], i32)], **ML)
f.declines("Imputer", 1, [whole], attrs={"imputed_value_floats": [5.0]}, why="no imputed value", **ML)
f.fails("Imputer", 1, [x], attrs={"imputed_value_floats": [1.0, 2.0]}, why="2 entries of imputed values for 4 features", **ML)

# Scaler
for t in TYPES:
    f.case("Scaler", 1, [x.astype(t)], attrs={"offset": [1.5], "scale": [0.3]}, **ML)
    f.case("Scaler", 1, [x.astype(t)], attrs={"offset": [1.5, 2.0, -3.0, 0.25], "scale": [0.3, 1.0, 2.0, -1.0]}, **ML)
f.case("Scaler", 1, [x[0]], attrs={"offset": [1.5], "scale": [0.3]}, **ML)
f.declines("Scaler", 1, [x], attrs={"offset": [1.5], "scale": [0.3, 0.4]}, why="1 offsets and 2 scales", **ML)
f.fails("Scaler", 1, [x], attrs={"offset": [1.5, 1.0], "scale": [0.3, 0.4]}, why="2 entries of (offset|scale) for 4 features", **ML)

# Normalizer
for norm in ("MAX", "L1", "L2"):
    for t in TYPES:
        f.case("Normalizer", 1, [x.astype(t)], attrs={"norm": norm}, **ML)
    f.case("Normalizer", 1, [x[0]], attrs={"norm": norm}, **ML)
    f.case("Normalizer", 1, [-np.abs(x)], attrs={"norm": norm}, **ML)
    f.case("Normalizer", 1, [np.zeros((2, 3), f32)], attrs={"norm": norm}, **ML)
    f.case("Normalizer", 1, [np.zeros((0, 3), f32)], attrs={"norm": norm}, **ML)
f.declines("Normalizer", 1, [x], attrs={"norm": "L3"}, why="norm 'L3'", **ML)
f.declines("Normalizer", 1, [x[None]], why="rank 3", **ML)

# OneHotEncoder
for t in TYPES:
    for zeros in (0, 1):
        v = np.array([[3, 1, 2], [2, 2, 3]], t)
        f.case("OneHotEncoder", 1, [v], attrs={"cats_int64s": [1, 2, 3], "zeros": zeros}, want=[(v[..., None] == np.arange(1, 4)).astype(f32)], **ML)
f.case("OneHotEncoder", 1, [np.array([3, 9, 1], i64)], attrs={"cats_int64s": [1, 2, 3]}, **ML)
f.case("OneHotEncoder", 1, [np.array([1.5, 2.9], f32)], attrs={"cats_int64s": [1, 2, 3]}, **ML)
f.case("OneHotEncoder", 1, [np.zeros((0,), i64)], attrs={"cats_int64s": [1, 2, 3]}, want=[np.zeros((0, 3), f32)], **ML)
f.declines("OneHotEncoder", 1, [x], attrs={"cats_strings": ["a"]}, why="no integer categories", **ML)
f.fails("OneHotEncoder", 1, [np.array([9], i64)], attrs={"cats_int64s": [1, 2, 3], "zeros": 0}, why="none of the categories", **ML)

# LabelEncoder
ids, weights = np.array([[3, 1], [4, 2 ** 40]], i64), np.array([1.5, np.nan, 0.0, 7.0], f32)
for opset in (2, 4):
    f.case("LabelEncoder", opset, [ids], attrs={"keys_int64s": [1, 3, 2 ** 40], "values_floats": [0.5, 1.5, 9.0], "default_float": -3.0}, **ML)
    f.case("LabelEncoder", opset, [ids], attrs={"keys_int64s": [1, 3, 2 ** 40], "values_int64s": [10, 30, 2 ** 41]}, **ML)
    f.case("LabelEncoder", opset, [weights], attrs={"keys_floats": [0.0, float("nan"), 1.5], "values_int64s": [10, 20, 30], "default_int64": 99}, **ML)
    f.case("LabelEncoder", opset, [weights], attrs={"keys_floats": [0.0, 1.5], "values_floats": [1.0, 2.0]}, **ML)
    f.case("LabelEncoder", opset, [ids[:0]], attrs={"keys_int64s": [1, 3], "values_int64s": [10, 30]}, **ML)
table = np.arange(4000, dtype=i64)
many = rng.integers(0, 5000, 5000).astype(i64)
f.case("LabelEncoder", 4, [many], attrs={"keys_int64s": table.tolist(), "values_int64s": (table * 3).tolist()}, name="blocks", **ML)
f.declines("LabelEncoder", 4, [ids], attrs={"keys_int64s": [3, 3], "values_int64s": [10, 30]}, why="a key is there twice", **ML)
for k, v in ((np.float64, np.float64), (i32, f32), (i64, i64), (np.int16, np.int16), (np.float64, i64)):
    keys, values = np.array([1, 3, 5], k), np.array([7, 8, 9], v)
    attrs = {"keys_tensor": numpy_helper.from_array(keys), "values_tensor": numpy_helper.from_array(values),
             "default_tensor": numpy_helper.from_array(np.array([42], v))}
    data = np.array([5, 2, 1, 3], k)
    f.case("LabelEncoder", 4, [data], attrs=attrs, want=[np.array([9, 42, 7, 8], v)], **ML)
f.declines("LabelEncoder", 2, [ids], attrs={"keys_int64s": [1], "values_strings": ["a"]}, why="type string", **ML)
f.declines("LabelEncoder", 2, [ids], attrs={"keys_int64s": list(range(5000)), "values_int64s": list(range(5000))}, why="too many", **ML)
test_ml_prep = f.pytest()
