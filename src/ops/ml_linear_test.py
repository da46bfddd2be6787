import numpy as np
from case import Family

f = Family("ml_linear")
ML = {"domain": "ai.onnx.ml"}
rng = np.random.default_rng(0)
TOL = (1e-4, 1e-5)
POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
f32 = np.float32


def floats(n):
    return [float(v) for v in rng.standard_normal(n).astype(f32)]


x = rng.standard_normal((6, 4)).astype(f32)
tall = (rng.random((5, 4)) * 0.2).astype(f32)  # scores in (0, 1), where PROBIT has a value
TYPES = (np.float64, np.int32, np.int64)

# LinearRegressor
w = floats(12)
for post in POSTS:
    f.case("LinearRegressor", 1, [x], attrs={"coefficients": w[:4], "intercepts": [0.5], "post_transform": post}, tol=TOL, **ML)
    f.case("LinearRegressor", 1, [x], attrs={"coefficients": w, "intercepts": w[:3], "targets": 3, "post_transform": post}, tol=TOL, **ML)
f.case("LinearRegressor", 1, [x], attrs={"coefficients": w[:4]}, tol=TOL, **ML)
f.case("LinearRegressor", 1, [x[0]], attrs={"coefficients": w[:4]}, tol=TOL, **ML)
f.case("LinearRegressor", 1, [x[:0]], attrs={"coefficients": w, "targets": 3, "post_transform": "SOFTMAX"}, **ML)
f.case("LinearRegressor", 1, [np.zeros((3, 2), f32)], attrs={"coefficients": [1.0] * 4, "targets": 2, "post_transform": "SOFTMAX_ZERO"}, tol=TOL, **ML)
for t in TYPES:
    v = (x * 4).astype(t)
    want = v.astype(f32) @ np.array(w[:4], f32).reshape(4, 1)
    f.case("LinearRegressor", 1, [v], attrs={"coefficients": w[:4]}, tol=TOL, want=[want], **ML)
f.declines("LinearRegressor", 1, [x], attrs={"coefficients": w[:5], "targets": 3}, why="5 coefficients for 3 targets", **ML)
f.declines("LinearRegressor", 1, [x], attrs={"coefficients": w[:4], "post_transform": "X"}, why="post_transform 'X'", **ML)
f.declines("LinearRegressor", 1, [x[None]], attrs={"coefficients": w[:4]}, why="rank 3", **ML)
f.fails("LinearRegressor", 1, [x], attrs={"coefficients": w[:3]}, why="4 features in the input, 3 in the model", **ML)

# LinearClassifier
for post in POSTS:
    attrs = {"coefficients": w, "intercepts": w[:3], "classlabels_ints": [7, -2, 5], "post_transform": post}
    f.case("LinearClassifier", 1, [x], outs=2, attrs=attrs, tol=TOL, **ML)
    if post != "PROBIT":
        attrs = {"coefficients": w[:4], "intercepts": [-0.25], "classlabels_ints": [5, 9], "post_transform": post}
        f.case("LinearClassifier", 1, [x], outs=2, attrs=attrs, tol=TOL, **ML)
pair = {"coefficients": w[:8], "intercepts": w[:2], "classlabels_ints": [0, 1], "post_transform": "SOFTMAX"}
f.case("LinearClassifier", 1, [x], outs=2, attrs=pair, tol=TOL, **ML)
f.case("LinearClassifier", 1, [x[1]], outs=2, attrs=pair, tol=TOL, **ML)
f.case("LinearClassifier", 1, [x[:0]], outs=2, attrs=pair, tol=TOL, want=[np.zeros(0, np.int64), np.zeros((0, 2), f32)], **ML)
for t in TYPES:
    f.case("LinearClassifier", 1, [(x * 4).astype(t)], outs=2, attrs=pair, tol=TOL, **ML)
f.declines("LinearClassifier", 1, [x], outs=2, attrs={**{k: v for k, v in pair.items() if k != "classlabels_ints"}, "classlabels_strings": ["a", "b"]}, why="type string", **ML)
f.declines("LinearClassifier", 1, [x], outs=2, attrs={**pair, "classlabels_ints": [1]}, why="1 class labels", **ML)
f.declines("LinearClassifier", 1, [x], outs=2, attrs={"coefficients": w[:4], "intercepts": [0.1], "classlabels_ints": [0, 1], "post_transform": "PROBIT"}, why="PROBIT", **ML)

# SVMRegressor
KERNELS = (("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 1.0, 3.0]), ("POLY", [0.5, 0.25, 2.0]), ("RBF", [0.3, 0.0, 0.0]), ("SIGMOID", [0.2, 0.1, 0.0]))
vectors = floats(20)
for kernel, params in KERNELS:
    attrs = {"coefficients": w[:5], "rho": [0.3], "support_vectors": vectors, "n_supports": 5, "kernel_type": kernel, "kernel_params": params}
    f.case("SVMRegressor", 1, [x], attrs=attrs, tol=TOL, **ML)
    f.case("SVMRegressor", 1, [x], attrs={**attrs, "one_class": 1}, tol=TOL, **ML)
linear = {"coefficients": w[:4], "rho": [0.3], "kernel_params": [0.0, 0.0, 0.0], "n_supports": 0}
f.case("SVMRegressor", 1, [x], attrs=linear, tol=TOL, **ML)
f.case("SVMRegressor", 1, [x[2]], attrs=linear, tol=TOL, **ML)
f.case("SVMRegressor", 1, [x[:0]], attrs=attrs, tol=TOL, **ML)
for t in TYPES:
    v = (x * 4).astype(t)
    f.case("SVMRegressor", 1, [v], attrs=linear, tol=TOL, want=[v.astype(f32) @ np.array(w[:4], f32).reshape(4, 1) + f32(0.3)], **ML)
f.declines("SVMRegressor", 1, [x], attrs={**linear, "post_transform": "LOGISTIC"}, why="post_transform", **ML)
f.declines("SVMRegressor", 1, [x], attrs={**linear, "kernel_type": "OTHER"}, why="kernel_type 'OTHER'", **ML)
f.declines("SVMRegressor", 1, [x], attrs={**attrs, "support_vectors": vectors[:18]}, why="18 coordinates", **ML)
f.fails("SVMRegressor", 1, [x[:, :3]], attrs=linear, why="3 features in the input, 4 in the model", **ML)

# SVMClassifier
two = {"coefficients": w[:5], "rho": [0.1], "support_vectors": vectors, "vectors_per_class": [3, 2], "classlabels_ints": [4, 8]}
three = {"coefficients": w[:10], "rho": [0.1, -0.2, 0.05], "support_vectors": vectors, "vectors_per_class": [2, 1, 2], "classlabels_ints": [4, 8, 6]}
for kernel, params in KERNELS:
    for base in (two, three):
        f.case("SVMClassifier", 1, [x], outs=2, attrs={**base, "kernel_type": kernel, "kernel_params": params}, tol=TOL, **ML)
rbf = {"kernel_type": "RBF", "kernel_params": [0.3, 0.0, 0.0]}
calibration = {"prob_a": [-1.5], "prob_b": [0.2]}
for post in POSTS:
    if post != "PROBIT":
        f.case("SVMClassifier", 1, [x], outs=2, attrs={**two, **rbf, "post_transform": post}, tol=TOL, **ML)
    f.case("SVMClassifier", 1, [x], outs=2, attrs={**three, **rbf, "post_transform": post}, tol=TOL, **ML)
    f.case("SVMClassifier", 1, [x], outs=2, attrs={**two, **rbf, **calibration, "post_transform": post}, tol=(1e-3, 1e-4), **ML)
    for coefficients, labels in ((w[:8], [3, 1]), ([abs(v) for v in w[:8]], [3, 1]), (w, [3, 1, 2])):
        attrs = {"coefficients": coefficients, "rho": [-0.1], "classlabels_ints": labels, "kernel_params": [0.0] * 3, "post_transform": post}
        f.case("SVMClassifier", 1, [x], outs=2, attrs=attrs, tol=TOL, **ML)
many = rng.standard_normal((200, 4)).astype(f32)
f.case("SVMClassifier", 1, [many], outs=2, attrs={**two, **rbf, **calibration}, tol=(1e-3, 1e-4), name="many probabilities", **ML)
f.case("SVMClassifier", 1, [x[0]], outs=2, attrs={**two, **rbf}, tol=TOL, **ML)
for t in TYPES:
    f.case("SVMClassifier", 1, [(x * 4).astype(t)], outs=2, attrs={**three, **rbf}, tol=TOL, **ML)
f.declines("SVMClassifier", 1, [x], outs=2, attrs={**three, **rbf, "prob_a": [1.0] * 3, "prob_b": [1.0] * 3}, why="probabilities of 3 classes", **ML)
f.declines("SVMClassifier", 1, [x], outs=2, attrs={**two, **rbf, "post_transform": "PROBIT"}, why="PROBIT", **ML)
f.declines("SVMClassifier", 1, [x], outs=2, attrs={**{k: v for k, v in two.items() if k != "classlabels_ints"}, **rbf, "classlabels_strings": ["a", "b"]}, why="type string", **ML)
f.declines("SVMClassifier", 1, [x], outs=2, attrs={**three, **rbf, "coefficients": w[:9]}, why="too few coefficients", **ML)
f.fails("SVMClassifier", 1, [x[:, :3]], outs=2, attrs={**two, **rbf}, why="3 features in the input, 4 in the model", **ML)
test_ml_linear = f.pytest()
