"""Graphs of notebooks against those that authors have written down by tags.

The notebooks have the steps, and the tags ``step:`` and ``prev:``, of public examples of Kale;
their code is ours, and passes on values as the steps of the examples do. A step is one ``%%sky``
cell that gives with ``-o`` what others read; its inputs are found by reading the code alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jupyter_sky.execution.cells.cell_names import assigned_names, read_names
from jupyter_sky.workflows.pipelines.notebook.cells import read_cells
from jupyter_sky.workflows.pipelines.notebook.links import LinkKind, Pipeline, link_cells

Tagged = Mapping[str, tuple[str, str]]
"""Steps before each step as its tags name them, and its code."""

CANDIES: Tagged = {
    "sack": ("", "print('a bag of', total)"),
    "kid1": ("sack", "first = take(total)"),
    "kid2": ("kid1", "second = take(total - first)"),
    "kid3": ("kid2", "third = take(total - first - second)"),
}
MATRIX: Tagged = {
    "create_matrix": ("", "matrix = np.ones((rows, columns))"),
    "sum_matrix": ("create_matrix", "result = matrix.sum()"),
}
IRIS: Tagged = {
    "load_transform_data": (
        "",
        "x, y = load()\nx_train, x_test, y_train, y_test = split(x, y, 0.2)",
    ),
    "train_model": (
        "load_transform_data",
        "model = Forest(trees, depth)\nmodel.fit(x_train, y_train)",
    ),
    "evaluate_model": (
        "load_transform_data train_model",
        "found = model.predict(x_test)\nscores = {f.__name__: f(y_test, found) for f in metrics}",
    ),
}
_MODELS = "random_forest logistic_regression naive_bayes svm decision_tree".split()
TITANIC: Tagged = {
    "load": ("", "train, test = read('train'), read('test')\nboth = [train, test]"),
    "preprocess": (
        "load",
        "for frame in both:\n    frame['alone'] = frame['family'] == 0\n"
        "train = train.drop(['cabin'], axis=1)\ntest = test.drop(['cabin'], axis=1)",
    ),
    "features": (
        "preprocess",
        "both = [train, test]\nfor frame in both:\n    frame['class'] = frame['fare'] > 9\n"
        "labels = train['survived']\ntrain = train.drop('survived', axis=1)",
    ),
    **{
        name: ("features", f"model = make()\nmodel.fit(train, labels)\nscore_{name} = model.score")
        for name in _MODELS
    },
    "results": (
        " ".join(_MODELS),
        f"print(sorted([{', '.join(f'score_{name}' for name in _MODELS)}]))",
    ),
}
CIFAR: Tagged = {
    "dataprocessing": (
        "",
        "train_set, test_set = fetch(train=True), fetch(train=False)\n"
        "train_loader, test_loader = batches(train_set, 4), batches(test_set, 4)",
    ),
    "train": (
        "dataprocessing",
        "net = Net()\noptimizer = SGD(net.parameters(), rate)\nfor epoch in range(epochs):\n"
        "    for images, labels in train_loader:\n        optimizer.zero_grad()\n"
        "        loss = criterion(net(images), labels)\n        loss.backward()\n"
        "        optimizer.step()",
    ),
    "testontest": (
        "train",
        "images, labels = next(iter(test_loader))\nguessed = net(images).max(1)\nprint(guessed)",
    ),
    "testwhole": (
        "testontest",
        "right = 0\nfor images, labels in test_loader:\n    guessed = net(images).max(1)\n"
        "    right += (guessed == labels).sum()\nprint(right)",
    ),
}
VACCINE: Tagged = {
    "load_data": ("", "train, test = read('train'), read('test')\ntrain.head()"),
    "preprocess_data": (
        "load_data",
        "columns = ['sequence', 'structure']\nwords = Tokenizer().fit('().ACGU')\n"
        "count = len(words.index) + 1\n"
        "def numbers(example):\n    return [words.numbers(text) for text in example]\n"
        "x_train = [numbers(row) for row in train[columns].values]\n"
        "y_train = train['reactivity'].values\nx_test = test[columns].values",
    ),
    "model_training": (
        "preprocess_data",
        "def build(length=107):\n    return Model(Embedding(count), Truncate(length))\n"
        "model = build()\nhistory = model.fit(x_train, y_train)\nprint(history)",
    ),
    "evaluate_model": (
        "model_training",
        "longer = build(130)\nlonger.set_weights(model.get_weights())\n"
        "print(longer.predict([numbers(row) for row in x_test]))",
    ),
}
_NETWORK = (
    "made = np.load('{name}.npz')\n{name} = Network(width)\n"
    "{name}.fit(made['train'], train_labels)\n"
    "right = ({name}.predict(made['test']) == test_labels).mean()\n"
    "def breed_{name}(path):\n    return breeds[{name}.predict(as_tensor(path)).argmax()]\n"
    "print(right, breed_{name}(test_files[0]))"
)
DOGS: Tagged = {
    "load_data": (
        "",
        "def pictures(folder):\n    found = load(folder)\n    return found.files, found.labels\n"
        "train_files, train_labels = pictures('train')\n"
        "test_files, test_labels = pictures('test')\n"
        "breeds = sorted(glob('train/*'))\nfew = train_files[:100]",
    ),
    "detect_dogs": (
        "load_data",
        "detector = Detector()\n"
        "def as_tensor(path):\n    return np.array(picture(path))[None]\n"
        "def is_dog(path):\n    return 150 < detector.predict(as_tensor(path)).argmax() < 269\n"
        "print(sum(is_dog(path) for path in few) / len(few))",
    ),
    "cnn_from_scratch": (
        "detect_dogs",
        "tensors = np.vstack([as_tensor(path) for path in train_files]) / 255\n"
        "scratch = Network(width)\nscratch.fit(tensors, train_labels)",
    ),
    "cnn_vgg16": ("detect_dogs", _NETWORK.format(name="vgg16")),
    "cnn_resnet50": ("detect_dogs", _NETWORK.format(name="resnet50")),
}
TAXI: Tagged = {
    "data_validation": (
        "",
        "with open(trips) as file:\n    names = file.readline().split(',')\n"
        "schema = infer(statistics(trips))\nodd = validate(statistics(later_trips), schema)\n"
        "for name, what in odd.items():\n    logging.error('%s: %s', name, what)\n"
        "payments = domain(schema, 'payment')\npayments.value.append('Card')",
    ),
    "data_transformation": (
        "data_validation",
        "def dense(tensor):\n    return tensor if is_dense(tensor) else squeeze(tensor)\n"
        "def prepare(inputs):\n    return {key: scale(dense(inputs[key])) for key in keys}\n"
        "folder = os.path.join(base, 'transformed')\n"
        "with Beam() as steps:\n    reader = Reader(names, schema)\n"
        "    rows = steps | Read(trips) | Map(reader.decode)\n"
        "    done, function = (rows, schema) | Transform(prepare)\n"
        "    _ = function | Write(folder)",
    ),
    "train": (
        "data_transformation",
        "def batches(made, files, size):\n    found = features(files, made.columns, size)\n"
        "    return found, found.pop('tips')\n"
        "made = Transformed(folder)\nestimator = Classifier(hidden, made.count('tips'))\n"
        "estimator.train(lambda: batches(made, os.path.join(folder, 'train*'), size))",
    ),
    "eval": (
        "train",
        "found = estimator.evaluate(lambda: batches(made, os.path.join(folder, 'eval*'), size))\n"
        "print(found)",
    ),
}


def _pipeline(steps: Tagged) -> Pipeline:
    """Return the cells of steps: each gives what it makes and a later one reads."""
    codes = [code for __, code in steps.values()]
    cells = []
    for place, (name, code) in enumerate(zip(steps, codes, strict=True)):
        later = set().union(*(read_names(each) for each in codes[place + 1 :]))
        given = sorted(assigned_names(code) & later)
        outputs = f" -o {','.join(given)}" if given else ""
        cells.append(f"%%sky --task {name}{outputs}\n{code}")
    notebook = {"cells": [{"cell_type": "code", "source": source} for source in cells]}
    return link_cells(read_cells(notebook))


def _before(direct: Mapping[str, set[str]], step: str) -> set[str]:
    return set().union(*({each} | _before(direct, each) for each in direct[step]))


@pytest.mark.parametrize(
    ("steps", "order_alone"),
    [
        (CANDIES, {("sack", "kid1")}),
        (MATRIX, set()),
        (IRIS, set()),
        (TITANIC, set()),
        (CIFAR, {("testontest", "testwhole")}),
        (VACCINE, set()),
        (DOGS, set()),
        (TAXI, set()),
    ],
    ids=["candies", "matrix", "iris", "titanic", "cifar", "vaccine", "dogs", "taxi"],
)
def test_the_graph_is_that_of_its_authors_tags(
    steps: Tagged, order_alone: set[tuple[str, str]]
) -> None:
    pipeline = _pipeline(steps)
    data = {(e.producer, e.consumer) for e in pipeline.links if e.kind is LinkKind.DATA}
    tagged = {name: set(before.split()) for name, (before, __) in steps.items()}
    edges = {(before, name) for name, found in tagged.items() for before in found}
    # a tag that carries no value is an order, which --after says
    assert edges - data == order_alone
    # a value that is passed on over several steps follows the tags' order
    assert all(producer in _before(tagged, consumer) for producer, consumer in data)
    assert not [finding for finding in pipeline.findings if finding.is_error]


def test_a_change_through_an_alias_that_is_not_given_back_is_found() -> None:
    code = "pair = [train, test]\nfor frame in pair:\n    frame['alone'] = 1"
    found = _pipeline({**TITANIC, "preprocess": ("load", code)}).findings
    assert [finding.text for finding in found] == [
        f"preprocess changes {name} in place, and features reads it unchanged"
        for name in ("test", "train")
    ]
