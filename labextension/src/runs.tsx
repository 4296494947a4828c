/** The tab of runs: what waits, what runs, what has run, each with its cell, time and cost. */

import React from 'react';

import type { IRun } from './api';
import type { IView } from './clusters';
import { fileName, gist, phase, runMark } from './facts';
import { Action, Empty, Mark, useSignal, useTick } from './parts';
import { clock, money, when } from './words';

const EXAMPLE = '%%sky --cpus 2\nimport os\nprint(os.cpu_count(), "CPUs")';

export function Runs({ view }: { view: IView }): JSX.Element {
  const { watch, deeds, _ } = view;
  useSignal(deeds.changed);
  const { runs } = watch.state!;
  const of = (which: ReturnType<typeof phase>) => runs.filter(run => phase(run) === which);
  const [waiting, running, ended] = [of('waiting'), of('running'), of('ended')];
  useTick(waiting.length + running.length > 0);
  if (!runs.length) {
    return (
      <Empty
        text={_('No cell has run on a cluster yet. This one would:')}
        example={EXAMPLE}
        why={deeds.whyNoCell()}
        insert={line => void deeds.insert(line)}
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

function Run({ run, view }: { run: IRun; view: IView }): JSX.Element {
  const { watch, deeds, _ } = view;
  const now = watch.now();
  const ended = phase(run) === 'ended';
  const seconds = (run.ended ?? now) - run.started;
  const name = run.name || `[${run.cell || ' '}]`;
  const cannot = deeds.whyNoNotebook(run);
  const stopping = deeds.isBusy(`stop ${run.run_id}`) ? _('Under way.') : '';
  const title = [
    run.code,
    run.notebook,
    cannot || _('Click to go to the cell'),
    _('Started %1', when(run.started, now))
  ].join('\n');
  return (
    <tr className="jsky-Run" data-jsky-run={run.run_id}>
      <td>
        <button
          type="button"
          className="jsky-Run-cell"
          aria-disabled={cannot ? true : undefined}
          title={title}
          onClick={() => void (cannot ? deeds.say(cannot, '', true) : deeds.openRun(run))}
        >
          <span>
            <Mark mark={runMark(run, _)} /> {name}
          </span>
          <code>{gist(run.code) || _('no code')}</code>
          <span className="jsky-Panel-quiet">
            {fileName(run.notebook)}
            {run.cluster ? ` · ${run.cluster}` : ''}
          </span>
        </button>
        <span className="jsky-Panel-actions">
          {ended ? null : (
            <Action
              label={_('Stop')}
              about={name}
              why={stopping || (run.stoppable ? '' : _('It cannot be stopped any more.'))}
              act={() => void deeds.stop([run])}
            />
          )}
          {deeds.hasLogs() ? (
            <Action label={_('Log')} about={name} act={() => deeds.openLog(run)} />
          ) : null}
        </span>
      </td>
      <td className="jsky-Panel-number" title={_('Started %1', when(run.started, now))}>
        {clock(seconds)}
        <span>{run.usd === null ? _('cost unknown') : money(run.usd, _)}</span>
        <span className="jsky-Panel-quiet">{when(run.started, now)}</span>
      </td>
    </tr>
  );
}
