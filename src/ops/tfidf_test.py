import numpy as np
from case import Family

f = Family("tfidf")
x = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int64)
two = {"mode": "TF", "min_gram_length": 2, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
       "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]}
weights = [0.5, 2.0, -1.0, 3.0, 0.25, 7.0, 1.5]
for t in (np.int32, np.int64):
    for mode in ("TF", "IDF", "TFIDF"):
        for skip in (0, 1, 5):
            f.case("TfIdfVectorizer", 9, [x.astype(t)], attrs={**two, "mode": mode, "max_skip_count": skip, "weights": weights})
    f.case("TfIdfVectorizer", 9, [x.astype(t)], attrs={**two, "min_gram_length": 1, "max_skip_count": 5})
f.case("TfIdfVectorizer", 9, [x[1]], attrs=two)
f.case("TfIdfVectorizer", 9, [x[1]], attrs={**two, "min_gram_length": 1, "max_gram_length": 1})
f.case("TfIdfVectorizer", 9, [x], attrs={**two, "ngram_indexes": [6, 5, 4, 3, 2, 1, 0], "min_gram_length": 1})
f.case("TfIdfVectorizer", 9, [x[:, :1]], attrs=two)
three = {**two, "max_gram_length": 3, "ngram_counts": [0, 2, 6], "pool_int64s": [5, 8, 3, 3, 6, 7, 3, 3, 7, 8, 7, 6], "ngram_indexes": [0, 1, 2, 3, 4, 5], "min_gram_length": 1}
for skip in (0, 1, 2):
    f.case("TfIdfVectorizer", 9, [x], attrs={**three, "max_skip_count": skip})
words = {k: v for k, v in two.items() if k != "pool_int64s"}
f.declines("TfIdfVectorizer", 9, [x], attrs={**words, "pool_strings": [str(v) for v in range(10)]}, why="no pool of integers")
f.declines("TfIdfVectorizer", 9, [x], attrs={**two, "ngram_indexes": [6, 5, 4, 3, 2, 1, 0], "weights": weights}, why="count in their order")
f.declines("TfIdfVectorizer", 9, [x], attrs={**two, "pool_int64s": [2, 2, 5, 4, 5, 6, 7, 8, 6, 7]}, why="there twice")
test_tfidf = f.pytest()
