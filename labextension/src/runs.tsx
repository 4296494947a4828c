/** Tab of waiting, running and past runs with cell, time and cost. */

import React from 'react';

import type { IRun } from './api';
import type { IView } from './clusters';
import { fileName, codeSummary, phase, runMark } from './selectors';
import { Action, Empty, Mark, useSignal, useTick } from './components';
import { durations, money, when } from './format';

const EXAMPLE = '%%sky --cpus 2\nimport os\nprint(os.cpu_count(), "CPUs")';

export function Runs({ view }: { view: IView }): JSX.Element {
  const { poller, actions, _ } = view;
  useSignal(actions.changed);
  const { runs } = poller.state!;
  const of = (which: ReturnType<typeof phase>) => runs.filter(run => phase(run) === which);
  const [waiting, running, ended] = [of('waiting'), of('running'), of('ended')];
  useTick(waiting.length + running.length > 0);
  if (!runs.length) {
    return (
      <Empty
        text={_('No cell has run on a cluster yet. This one would:')}
        example={EXAMPLE}
        why={actions.noCellReason()}
        insert={line => void actions.insert(line)}
        _={_}
      />
    );
  }
  return (
    <>
      <Group title={_('Waiting')} runs={waiting} view={view} />
      <Group title={_('Running')} runs={running} view={view} />
      <Group title={_('Ended')} runs={ended} view={view} />
    </>
  );
}

function Group({ title, runs, view }: { title: string; runs: IRun[]; view: IView }) {
  const { _ } = view;
  if (!runs.length) return null;
  return (
    <table className="jsky-Panel-table jsky-Runs">
      <caption>
        {title} ({runs.length})
      </caption>
      <thead>
        <tr>
          <th scope="col">{_('Cell')}</th>
          <th scope="col">{_('Time, cost')}</th>
        </tr>
      </thead>
      <tbody>
        {runs.map(run => (
          <Run key={run.run_id} run={run} view={view} />
        ))}
      </tbody>
    </table>
  );
}

const LONGEST = 80; // characters of code in a row

function clip(code: string): string {
  return code.length > LONGEST ? `${code.slice(0, LONGEST - 1)}…` : code;
}

function Run({ run, view }: { run: IRun; view: IView }): JSX.Element {
  const { poller, actions, _ } = view;
  const now = poller.now();
  const ended = phase(run) === 'ended';
  const seconds = (run.ended ?? now) - run.started;
  const name = run.name || `[${run.cell || ' '}]`;
  const cannot = actions.noNotebookReason(run);
  const stopping = actions.isBusy(`stop ${run.run_id}`) ? _('Under way.') : '';
  const go = () => void (cannot ? actions.say(cannot, '', true) : actions.openRun(run));
  const title = [
    run.code,
    run.notebook,
    cannot || _('Click to go to the cell'),
    _('Started %1', when(run.started, now))
  ].join('\n');
  return (
    <tr
      className="jsky-Run"
      data-jsky-run={run.run_id}
      onClick={go}
    >
      <td>
        <button
          type="button"
          className="jsky-Run-cell"
          aria-disabled={cannot ? true : undefined}
          title={title}
          onClick={event => {
            event.stopPropagation();
            go();
          }}
        >
          <span>
            <Mark mark={runMark(run, _)} /> {name}
          </span>
          <code>{clip(codeSummary(run.code)) || _('no code')}</code>
          <span className="jsky-Panel-quiet">
            {fileName(run.notebook)}
            {run.cluster ? ` · ${run.cluster}` : ''}
          </span>
        </button>
        {run.warning ? <span className="jsky-Panel-quiet">{run.warning}</span> : null}
        <span className="jsky-Panel-actions">
          {ended ? null : (
            <Action
              label={run.warning ? _('Restart engine') : _('Stop')}
              about={name}
              why={stopping || (run.stoppable ? '' : _('It cannot be stopped any more.'))}
              act={() => void actions.stop([run])}
            />
          )}
          {actions.hasLogs() ? (
            <Action label={_('Log')} about={name} act={() => actions.openLog(run)} />
          ) : null}
        </span>
      </td>
      <td className="jsky-Panel-number" title={_('Started %1', when(run.started, now))}>
        {durations(seconds, run.waited, _)}
        <span>{run.usd === null ? _('cost unknown') : money(run.usd, _)}</span>
        <span className="jsky-Panel-quiet">{when(run.started, now)}</span>
      </td>
    </tr>
  );
}
