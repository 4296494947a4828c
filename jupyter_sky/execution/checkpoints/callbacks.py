"""Callbacks of training libraries that keep their models in a `checkpointed` state.

Each library is imported by the function that names it. A loop of PyTorch needs none::

    model.load_state_dict(state.get("model", model.state_dict()))
    for batch in sky.resumable(loader, state):
        ...
        state["model"] = model.state_dict()
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.checkpoints.resumable import resumable

if TYPE_CHECKING:
    from jupyter_sky.execution.checkpoints.state import CheckpointedState

KEY = "model"
"""Name in the state under which each of them keeps its model."""


def keras(state: CheckpointedState, key: str = KEY) -> Any:
    """Return a callback of Keras that saves weights, optimizer and epoch after each epoch.

    Parameters
    ----------
    state, key
        State of `checkpointed`, and the name in it.

    Examples
    --------
    >>> with sky.checkpointed("fit") as state:  # doctest: +SKIP
    ...     saved = sky.callbacks.keras(state)
    ...     model.fit(x, y, epochs=30, initial_epoch=saved.epoch, callbacks=[saved])
    """
    from keras.callbacks import Callback

    class SavedModel(Callback):
        """Callback that restores the model at the begin and saves it after each epoch."""

        def __init__(self) -> None:
            super().__init__()
            self.epoch = int(state.get(key, {}).get("epoch", 0))

        def on_train_begin(self, logs: Any = None) -> None:
            if saved := state.get(key):
                optimizer = self.model.optimizer
                optimizer.build(self.model.trainable_variables)
                self.model.set_weights(saved["weights"])
                for variable, value in zip(optimizer.variables, saved["optimizer"], strict=True):
                    variable.assign(value)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch + 1
            state[key] = {
                "epoch": self.epoch,
                "weights": self.model.get_weights(),
                "optimizer": [_as_array(value) for value in self.model.optimizer.variables],
            }
            state.progress(self.epoch, self.params["epochs"])
            state.safe_point()

    return SavedModel()


def _as_array(variable: Any) -> Any:
    from keras import ops

    return ops.convert_to_numpy(variable)


def lightning(state: CheckpointedState, key: str = KEY) -> Any:
    """Return a callback of Lightning that saves the whole training after each epoch.

    Parameters
    ----------
    state, key
        State of `checkpointed`, and the name in it.

    Examples
    --------
    >>> with sky.checkpointed("fit") as state:  # doctest: +SKIP
    ...     saved = sky.callbacks.lightning(state)
    ...     trainer = lightning.Trainer(max_epochs=30, callbacks=[saved])
    ...     trainer.fit(model, loader, ckpt_path=saved.path)
    """
    import tempfile
    from pathlib import Path

    from lightning.pytorch.callbacks import Callback

    folder = tempfile.TemporaryDirectory(prefix="sky-lightning-")

    class SavedTraining(Callback):
        """Callback that saves Lightning's own checkpoint after each epoch."""

        def __init__(self) -> None:
            self._folder, self.path = folder, None
            if saved := state.get(key):
                self.path = str(Path(folder.name) / "restored.ckpt")
                Path(self.path).write_bytes(saved)

        path: str | None

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            path = Path(folder.name) / "newest.ckpt"
            trainer.save_checkpoint(path)
            state[key] = path.read_bytes()
            state.progress(trainer.current_epoch + 1, max(trainer.max_epochs or 0, 0))
            state.safe_point()

    return SavedTraining()


def xgboost(state: CheckpointedState, key: str = KEY) -> Any:
    """Return a callback of XGBoost that saves the booster after each round.

    Parameters
    ----------
    state, key
        State of `checkpointed`, and the name in it.

    Examples
    --------
    >>> with sky.checkpointed("fit") as state:  # doctest: +SKIP
    ...     saved = sky.callbacks.xgboost(state)
    ...     booster = xgboost.train(
    ...         params, data, 500 - saved.rounds, xgb_model=saved.booster, callbacks=[saved]
    ...     )
    """
    from xgboost import Booster
    from xgboost.callback import TrainingCallback

    class SavedBooster(TrainingCallback):
        """Callback that keeps the booster of each round."""

        def __init__(self) -> None:
            super().__init__()
            self.booster = Booster(model_file=state[key]) if key in state else None
            self.rounds = self.booster.num_boosted_rounds() if self.booster else 0

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            state[key] = model.save_raw("ubj")
            state.safe_point()
            return False

    return SavedBooster()


def partial_fit(
    model: Any, batches: Iterable[Any], state: CheckpointedState, key: str = KEY, **options: Any
) -> Any:
    """Fit a model of scikit-learn batch by batch; return it as it is after the last one.

    Parameters
    ----------
    model
        Estimator with ``partial_fit``; that of the state goes on instead where there is one.
    batches
        Arguments of each call: ``X`` or ``(X, y)``.
    state, key
        State of `checkpointed`, and the name in it.
    **options
        Further arguments of each call, such as ``classes``.

    Raises
    ------
    SkyUsageError
        The estimator cannot be fitted in parts.

    Examples
    --------
    >>> with sky.checkpointed("fit") as state:  # doctest: +SKIP
    ...     model = sky.callbacks.partial_fit(SGDClassifier(), batches, state, classes=[0, 1])
    """
    if not hasattr(model, "partial_fit"):
        raise SkyUsageError(
            _("{name} has no partial_fit").format(name=type(model).__name__),
            hint=_("take an estimator that learns in parts, or save it after fit"),
        )
    model = state.setdefault(key, model)
    for batch in resumable(batches, state):
        model.partial_fit(*(batch if isinstance(batch, tuple) else (batch,)), **options)
    return model
