/** The item in the status bar: clusters up, what they cost by the hour, and whether it is too much. */

import { ReactWidget } from '@jupyterlab/ui-components';
import React from 'react';

import { cloudIcon } from './icons';
import { summary, todayLine } from './facts';
import { useSignal } from './parts';
import type { Watch } from './watch';
import type { Translate } from './words';

export class StatusItem extends ReactWidget {
  constructor(
    readonly watch: Watch,
    readonly open: () => void,
    readonly _: Translate
  ) {
    super();
    this.addClass('jsky-StatusItem');
  }

  protected render(): JSX.Element {
    return <Item watch={this.watch} open={this.open} _={this._} />;
  }
}

export function Item(props: { watch: Watch; open: () => void; _: Translate }): JSX.Element {
  const { watch, open, _ } = props;
  useSignal(watch.changed);
  const { state, problem } = watch;
  let text = _('Sky');
  let more = _('Not asked yet.');
  if (problem) {
    text = _('Sky: no answer');
    more = `${_(problem.message)} ${_(problem.hint)}`;
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
      <cloudIcon.react tag="span" className="jsky-StatusItem-icon" />
      {text}
    </button>
  );
}
