/** Item of the status bar: clusters up, their price, and a warning about the budget. */

import React from 'react';

import { summary, todayLine } from './selectors';
import { useSignal } from './components';
import type { StatePoller } from './statePoller';
import type { Translate } from './format';

export function StatusSummary(props: {
  poller: StatePoller;
  icon?: JSX.Element;
  open: () => void;
  _: Translate;
}): JSX.Element {
  const { poller, icon, open, _ } = props;
  useSignal(poller.changed);
  const { state, problem } = poller;
  let text = _('Sky');
  let more = _('Not asked yet.');
  if (problem) {
    text = _('Sky: no answer');
    more = `${problem.message} ${problem.hint}`;
  } else if (state) {
    text = summary(state, _);
    more = _('Clusters of jupyter_sky: %1. %2.', text, todayLine(state, _));
  }
  const over = !problem && state?.today.over;
  return (
    <button
      type="button"
      className={`jsky-StatusItem-button${over ? ' jsky-mod-over' : ''}`}
      title={`${more}\n${_('Click to open the panel.')}`}
      aria-label={`${_('Sky')}: ${text}`}
      onClick={open}
    >
      {icon}
      {text}
    </button>
  );
}
