"""Callbacks of training libraries: a training that was cut off ends as one that was not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.execution.checkpoints import callbacks
from jupyter_sky.execution.checkpoints.places import FolderPlace
from jupyter_sky.execution.checkpoints.state import CheckpointedState, Pace


class Stopped(Exception):
    """Stands for the end of a machine."""


def state_in(folder: Path) -> CheckpointedState:
    return CheckpointedState("fit", FolderPlace(folder), Pace(1e-9))  # at each safe point


@pytest.mark.slow
def test_partial_fit(tmp_path: Path) -> None:
    from sklearn.linear_model import SGDClassifier

    rng = np.random.default_rng(1)
    batches = [(rng.normal(size=(50, 3)), rng.integers(0, 2, 50)) for _number in range(6)]

    def cut_off(after: int) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == after:
                raise Stopped
            yield batch

    whole = SGDClassifier(random_state=0)
    for X, y in batches:
        whole.partial_fit(X, y, classes=[0, 1])
    for after in (2, 5):
        with pytest.raises(Stopped), state_in(tmp_path) as state:
            model = SGDClassifier(random_state=0)
            callbacks.partial_fit(model, cut_off(after), state, classes=[0, 1])
    with state_in(tmp_path) as state:
        model = SGDClassifier(random_state=0)
        fitted = callbacks.partial_fit(model, batches, state, classes=[0, 1])
    assert np.array_equal(fitted.coef_, whole.coef_)
    assert fitted.t_ == whole.t_


def test_an_estimator_without_partial_fit(tmp_path: Path) -> None:
    with state_in(tmp_path) as state, pytest.raises(SkyUsageError, match="dict has no partial_fit"):
        callbacks.partial_fit({}, [], state)


@pytest.mark.slow
def test_xgboost(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    rng = np.random.default_rng(1)
    data = xgboost.DMatrix(rng.normal(size=(200, 4)), label=rng.normal(size=200))
    params = {"max_depth": 2, "seed": 0, "nthread": 1}
    whole = xgboost.train(params, data, 12)

    class StopAfter(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if model.num_boosted_rounds() == 5:
                raise Stopped
            return False

    with pytest.raises(Stopped), state_in(tmp_path) as state:
        saved = callbacks.xgboost(state)
        xgboost.train(params, data, 12, callbacks=[saved, StopAfter()])
    with state_in(tmp_path) as state:
        saved = callbacks.xgboost(state)
        assert saved.rounds == 5
        found = xgboost.train(
            params, data, 12 - saved.rounds, xgb_model=saved.booster, callbacks=[saved]
        )
    assert np.allclose(found.predict(data), whole.predict(data))


@pytest.mark.slow
def test_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("torch", reason="torch is not installed")
    keras = pytest.importorskip("keras", reason="keras is not installed")
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(64, 3)), rng.normal(size=(64, 1))

    def model() -> Any:
        keras.utils.set_random_seed(1)
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        made.compile("adam", "mse")
        return made

    def fit(made: Any, **options: Any) -> None:
        made.fit(x, y, epochs=6, shuffle=False, verbose=0, **options)

    class StopAfter(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise Stopped

    whole = model()
    fit(whole)
    with pytest.raises(Stopped), state_in(tmp_path) as state:
        fit(model(), callbacks=[callbacks.keras(state), StopAfter()])
    with state_in(tmp_path) as state:
        saved, again = callbacks.keras(state), model()
        assert saved.epoch == 3
        fit(again, initial_epoch=saved.epoch, callbacks=[saved])
    for found, expected in zip(again.get_weights(), whole.get_weights(), strict=True):
        assert np.allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_lightning(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("lightning", reason="lightning is not installed")
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback

    class Line(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return (self.layer(batch[0]) - batch[1]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.1)

    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(16, size, generator=generator) for size in (2, 1))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)

    def trainer(*added: Any) -> Any:
        return Trainer(
            max_epochs=6,
            callbacks=list(added),
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )

    class StopAfter(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 3:
                raise Stopped

    whole = Line()
    trainer().fit(whole, loader)
    with pytest.raises(Stopped), state_in(tmp_path / "s") as state:
        trainer(callbacks.lightning(state), StopAfter()).fit(Line(), loader)
    with state_in(tmp_path / "s") as state:
        saved, again = callbacks.lightning(state), Line()
        run = trainer(saved)
        run.fit(again, loader, ckpt_path=saved.path)
    assert run.current_epoch == 6
    assert torch.allclose(again.layer.weight, whole.layer.weight, atol=1e-6)
