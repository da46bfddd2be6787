import numpy as np
from case import Case, Family, model_of, session
from onnx import numpy_helper

f = Family("ml_tree")
ML = {"domain": "ai.onnx.ml"}
rng = np.random.default_rng(0)
f32, f64, i64 = np.float32, np.float64, np.int64
TOL = (1e-4, 1e-5)
POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 4


def grow(depth, modes, missing, split):
    """Nodes of one random tree, first the root: (feature, mode, value, yes, no, missing), or None for a leaf."""
    nodes = []

    def add(level):
        at = len(nodes)
        nodes.append(None)
        if level == 0 or (level < depth and rng.random() < 0.25):
            return at
        entry = [int(rng.integers(FEATURES)), str(rng.choice(modes)), split(), 0, 0, int(rng.integers(2)) if missing else 0]
        nodes[at] = entry
        entry[3] = add(level - 1)
        entry[4] = add(level - 1)
        return at

    add(depth)
    return nodes


def ensemble(kind, trees=5, depth=4, modes=("BRANCH_LEQ",), missing=False, targets=(0,), low=-1.0, split=rng.standard_normal, dense=True):
    a = {k: [] for k in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values", "nodes_truenodeids", "nodes_falsenodeids",
                         "nodes_missing_value_tracks_true", f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids", f"{kind}_weights")}
    for tree in range(trees):
        for i, node in enumerate(grow(depth, modes, missing, lambda: float(f32(split())))):
            a["nodes_treeids"].append(tree)
            a["nodes_nodeids"].append(i)
            feature, mode, value, yes, no, track = node or (0, "LEAF", 0.0, 0, 0, 0)
            for key, v in zip(("featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true"), (feature, mode, value, yes, no, track)):
                a[f"nodes_{key}"].append(v)
            if node:
                continue
            for target in targets if dense else [targets[tree % len(targets)]]:
                a[f"{kind}_treeids"].append(tree)
                a[f"{kind}_nodeids"].append(i)
                a[f"{kind}_ids"].append(target)
                a[f"{kind}_weights"].append(float(f32(rng.uniform(low, 1.0) / trees)))
    return a


def whole(v):
    return float(rng.integers(-2, 3))


x = rng.standard_normal((9, FEATURES)).astype(f32)
gaps = x.copy()
gaps[rng.random(gaps.shape) < 0.3] = np.nan
steps = rng.integers(-2, 3, (9, FEATURES)).astype(f32)

# TreeEnsembleRegressor
for mode in MODES:
    f.case("TreeEnsembleRegressor", 3, [steps], attrs={**ensemble("target", modes=(mode,), split=lambda: whole(0)), "n_targets": 1}, tol=TOL, **ML)
f.case("TreeEnsembleRegressor", 3, [steps], attrs={**ensemble("target", modes=MODES, split=lambda: whole(0), depth=6), "n_targets": 1}, tol=TOL, name="all modes", **ML)
for missing in (False, True):
    f.case("TreeEnsembleRegressor", 3, [gaps], attrs={**ensemble("target", missing=missing), "n_targets": 1}, tol=TOL, name="gaps", **ML)
    f.case("TreeEnsembleRegressor", 1, [gaps], attrs={**ensemble("target", modes=MODES, missing=missing), "n_targets": 1}, tol=TOL, name="gaps", **ML)
for post in POSTS:
    f.case("TreeEnsembleRegressor", 3, [x], attrs={**ensemble("target", low=0.1), "n_targets": 1, "post_transform": post}, tol=(1e-3, 1e-4), **ML)
    f.case("TreeEnsembleRegressor", 3, [x], attrs={**ensemble("target", targets=(0, 1, 2), low=0.1), "n_targets": 3, "post_transform": post}, tol=(1e-3, 1e-4), **ML)
for how in ("SUM", "AVERAGE", "MIN", "MAX"):
    f.case("TreeEnsembleRegressor", 3, [x], attrs={**ensemble("target"), "n_targets": 1, "aggregate_function": how}, tol=TOL, **ML)
    f.case("TreeEnsembleRegressor", 3, [x], attrs={**ensemble("target"), "n_targets": 1, "aggregate_function": how, "base_values": [0.5]}, tol=TOL, **ML)
    attrs = {**ensemble("target", targets=(0, 1, 2), dense=False), "n_targets": 4, "aggregate_function": how}
    f.case("TreeEnsembleRegressor", 3, [x], attrs=attrs, tol=TOL, **ML)
    f.case("TreeEnsembleRegressor", 3, [x], attrs={**attrs, "base_values": [0.5, 1.0, 2.0, 3.0]}, tol=TOL, **ML)
plain = {**ensemble("target", depth=8, trees=30), "n_targets": 1}
f.case("TreeEnsembleRegressor", 3, [rng.standard_normal((300, FEATURES)).astype(f32)], attrs=plain, tol=TOL, name="many rows", **ML)
f.case("TreeEnsembleRegressor", 3, [x[:1]], attrs=plain, tol=TOL, **ML)
f.case("TreeEnsembleRegressor", 3, [x[:0]], attrs=plain, want=[np.zeros((0, 1), f32)], **ML)
f.case("TreeEnsembleRegressor", 3, [x], attrs={**ensemble("target", depth=0), "n_targets": 1}, tol=TOL, name="leaves alone", **ML)
f.case("TreeEnsembleRegressor", 3, [x.astype(f64)], attrs=plain, tol=TOL, **ML)
for t in (np.int32, i64):  # ONNX Runtime has floats only
    data = (x * 3).astype(t)
    same = Case("TreeEnsembleRegressor", 3, [data.astype(f32)], attrs=plain, **ML)
    want = session(model_of(same, False), False).run(None, {"in0": same.inputs[0]})
    f.case("TreeEnsembleRegressor", 3, [data], attrs=plain, tol=TOL, want=want, **ML)
swapped = dict(plain)
swapped["nodes_truenodeids"] = [plain["nodes_nodeids"][0]] * len(plain["nodes_modes"])
f.declines("TreeEnsembleRegressor", 3, [x], attrs=swapped, why="the nodes form a circle", **ML)
f.declines("TreeEnsembleRegressor", 3, [x], attrs={**plain, "nodes_truenodeids": [99999] * len(plain["nodes_modes"])}, why="a child is missing", **ML)
f.declines("TreeEnsembleRegressor", 3, [x], attrs={**plain, "target_ids": [1] * len(plain["target_ids"])}, why="a vote for 1 of 1", **ML)
f.declines("TreeEnsembleRegressor", 3, [x], attrs={**plain, "base_values": [1.0, 2.0]}, why="2 base values for 1 targets", **ML)
f.fails("TreeEnsembleRegressor", 3, [x[:, :1]], attrs=plain, why="1 features in the input", **ML)

# TreeEnsembleClassifier
for post in POSTS:
    attrs = {**ensemble("class", targets=(0, 1, 2), low=0.0), "classlabels_int64s": [7, 3, 5], "post_transform": post}
    f.case("TreeEnsembleClassifier", 3, [x], outs=2, attrs=attrs, tol=(1e-3, 1e-4), **ML)
    attrs = {**ensemble("class", targets=(0, 1, 2), dense=False, low=0.1), "classlabels_int64s": [7, 3, 5], "post_transform": post, "base_values": [0.1, 0.2, 0.3]}
    f.case("TreeEnsembleClassifier", 1, [x], outs=2, attrs=attrs, tol=(1e-3, 1e-4), **ML)
    if post == "PROBIT":
        continue
    for target in (0, 1):
        for low in (-1.0, 0.2):
            attrs = {**ensemble("class", targets=(target,), low=low), "classlabels_int64s": [7, 3], "post_transform": post}
            f.case("TreeEnsembleClassifier", 3, [x], outs=2, attrs=attrs, tol=TOL, **ML)
            if target == 0:
                f.case("TreeEnsembleClassifier", 3, [x], outs=2, attrs={**attrs, "base_values": [0.25]}, tol=TOL, **ML)
three = {**ensemble("class", targets=(0, 1, 2), dense=False, trees=2), "classlabels_int64s": [7, 3, 5]}
f.case("TreeEnsembleClassifier", 3, [x], outs=2, attrs=three, tol=TOL, name="a class without votes", **ML)
f.case("TreeEnsembleClassifier", 3, [x[:0]], outs=2, attrs=three, want=[np.zeros(0, i64), np.zeros((0, 3), f32)], **ML)
for t in (f64, np.int32, i64):
    f.case("TreeEnsembleClassifier", 3, [(x * 3).astype(t)], outs=2, attrs=three, tol=TOL, **ML)
both = {**ensemble("class", targets=(0, 1)), "classlabels_int64s": [0, 1]}
f.declines("TreeEnsembleClassifier", 3, [x], outs=2, attrs=both, why="votes for both of two classes", **ML)
f.declines("TreeEnsembleClassifier", 3, [x], outs=2, attrs={**ensemble("class", targets=(0,)), "classlabels_int64s": [0, 1], "post_transform": "PROBIT"}, why="PROBIT", **ML)


# TreeEnsemble
def new_form(t, trees=4, depth=3, modes=6, targets=2, members=False):
    a = {k: [] for k in ("featureids", "modes", "splits", "truenodeids", "trueleafs", "falsenodeids", "falseleafs", "missing")}
    leaves, roots, sets = [], [], []

    def add(level):
        if level == 0 or (level < depth and rng.random() < 0.2):
            leaves.append((int(rng.integers(targets)), rng.standard_normal()))
            return len(leaves) - 1, 1
        at = len(a["modes"])
        mode = 6 if members and rng.random() < 0.5 else int(rng.integers(modes))
        for key, v in zip(a, (int(rng.integers(FEATURES)), mode, whole(0), 0, 0, 0, 0, int(rng.integers(2)))):
            a[key].append(v)
        if mode == 6:
            sets.extend([whole(0) for _ in range(int(rng.integers(1, 4)))] + [np.nan])
        a["truenodeids"][at], a["trueleafs"][at] = add(level - 1)
        a["falsenodeids"][at], a["falseleafs"][at] = add(level - 1)
        return at, 0

    for _ in range(trees):
        roots.append(add(depth)[0])
    tensor = lambda v, kind, name: numpy_helper.from_array(np.array(v, kind), name)
    attrs = {f"nodes_{k}": a[k] for k in ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")}
    attrs |= {"nodes_modes": tensor(a["modes"], np.uint8, "m"), "nodes_splits": tensor(a["splits"], t, "s"), "nodes_missing_value_tracks_true": a["missing"],
              "leaf_targetids": [v for v, _ in leaves], "leaf_weights": tensor([w for _, w in leaves], t, "w"), "tree_roots": roots, "n_targets": targets}
    return attrs | ({"membership_values": tensor(sets, t, "v")} if sets else {})


holes = steps.copy()
holes[rng.random(holes.shape) < 0.2] = np.nan
for t in (f32, f64):
    f.case("TreeEnsemble", 5, [steps.astype(t)], attrs=new_form(t), tol=TOL, **ML)
    f.case("TreeEnsemble", 5, [holes.astype(t)], attrs=new_form(t), tol=TOL, name="gaps", **ML)
    f.case("TreeEnsemble", 5, [steps.astype(t)], attrs=new_form(t, members=True, depth=4), tol=TOL, name="members", **ML)
    f.case("TreeEnsemble", 5, [holes.astype(t)], attrs=new_form(t, members=True, modes=1, targets=1), tol=TOL, name="members and gaps", **ML)
for post in (0, 3):
    f.case("TreeEnsemble", 5, [steps], attrs={**new_form(f32, targets=3), "post_transform": post}, tol=TOL, **ML)
for post in (1, 2):
    f.declines("TreeEnsemble", 5, [steps], attrs={**new_form(f32, targets=3), "post_transform": post}, why="which post_transform is", **ML)
for how in range(4):
    f.case("TreeEnsemble", 5, [steps], attrs={**new_form(f32, targets=1), "aggregate_function": how}, tol=TOL, **ML)
small = {"nodes_featureids": [0], "nodes_modes": numpy_helper.from_array(np.array([0], np.uint8)), "nodes_splits": numpy_helper.from_array(np.array([0.5], np.float16)),
         "nodes_truenodeids": [0], "nodes_trueleafs": [1], "nodes_falsenodeids": [1], "nodes_falseleafs": [1], "leaf_targetids": [0, 0],
         "leaf_weights": numpy_helper.from_array(np.array([1.5, -2.0], np.float16)), "tree_roots": [0], "n_targets": 1}
half = np.array([[0.25], [0.5], [0.75]], np.float16)
f.case("TreeEnsemble", 5, [half], attrs=small, want=[np.array([[1.5], [1.5], [-2.0]], np.float16)], **ML)
f.declines("TreeEnsemble", 5, [half], attrs={**small, "tree_roots": [3]}, why="root 3 is no node", **ML)
f.declines("TreeEnsemble", 5, [half], attrs={**small, "nodes_falsenodeids": [7]}, why="no such child or mode", **ML)
test_ml_tree = f.pytest()
