/** Notifications that an idle cluster is about to end. */

import { Notification } from '@jupyterlab/apputils';

import type { ICluster } from './api';
import { endingSoon } from './selectors';
import { clock, Translate } from './format';
import type { StatePoller } from './statePoller';

const CHECK_SECONDS = 5;

/** Warns once before each end, and takes the warning back when the cluster is used again. */
export function warnOfIdle(
  poller: StatePoller,
  extend: (cluster: ICluster) => unknown,
  _: Translate
): () => void {
  const shown = new Map<string, string>();
  const look = () => {
    const now = poller.now();
    const soon = endingSoon(poller.state, now);
    for (const [name, id] of [...shown]) {
      if (soon.some(one => one.name === name)) continue;
      Notification.dismiss(id);
      shown.delete(name);
    }
    for (const one of soon) {
      if (shown.has(one.name)) continue;
      const left = clock(Math.max(0, one.idle_left! - (now - poller.state!.at)));
      const text = _('Nobody uses %1: it ends in %2, with its variables.', one.name, left);
      const actions = [{ label: _('Extend…'), callback: () => void extend(one) }];
      shown.set(one.name, Notification.emit(text, 'warning', { autoClose: false, actions }));
    }
  };
  poller.changed.connect(look);
  const timer = setInterval(look, CHECK_SECONDS * 1000);
  return () => {
    clearInterval(timer);
    poller.changed.disconnect(look);
  };
}
