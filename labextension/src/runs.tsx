/** Tab of waiting, running and past runs with cell, time and cost. */

import { folderIcon, listIcon, stopIcon } from '@jupyterlab/ui-components';
import React, { useState } from 'react';

import type { IRun } from './api';
import type { IView } from './clusters';
import { fileName, codeSummary, phase, runMark } from './selectors';
import { Action, Empty, Mark, useSignal, useTick } from './components';
import { clusterOf, RunFiles } from './files';
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
  if (!runs.length) return null;
  const heading = `${title} (${runs.length})`;
  return (
    <section aria-label={title}>
      <h3 className="jsky-Panel-group">{heading}</h3>
      <ul className="jsky-Panel-list" aria-label={title}>
        {runs.map(run => (
          <Run key={run.run_id} run={run} view={view} />
        ))}
      </ul>
    </section>
  );
}

/** Run in two lines: name, code and cost; state, time and notebook. The tooltip has all of it. */
function Run({ run, view }: { run: IRun; view: IView }): JSX.Element {
  const { poller, actions, _ } = view;
  const [listed, list] = useState(false);
  const now = poller.now();
  const name = run.name || `[${run.cell || ' '}]`;
  const cannot = actions.noNotebookReason(run);
  const go = () => void (cannot ? actions.say(cannot, '', true) : actions.openRun(run));
  const facts = [
    durations((run.ended ?? now) - run.started, run.waited, _),
    fileName(run.notebook),
    run.cluster ?? '',
    when(run.started, now)
  ].filter(Boolean);
  const title = [
    run.code,
    run.notebook,
    cannot || _('Click to go to the cell'),
    _('Started %1', when(run.started, now))
  ];
  return (
    <li
      className="jsky-Row jsky-Run"
      data-jsky-run={run.run_id}
      title={[facts.join(' · '), ...title].join('\n')}
      onClick={go}
    >
      <button
        type="button"
        className="jsky-Row-line jsky-Run-cell"
        aria-disabled={cannot ? true : undefined}
        onClick={event => {
          event.stopPropagation();
          go();
        }}
      >
        <b>{name}</b> <code>{codeSummary(run.code) || _('no code')}</code>
      </button>
      <span className="jsky-Row-figure">
        {run.usd === null ? _('cost unknown') : money(run.usd, _)}
      </span>
      <span className="jsky-Row-line jsky-Row-facts jsky-Panel-quiet">
        <Mark mark={runMark(run, _)} /> · {facts.join(' · ')}
      </span>
      {run.warning ? <span className="jsky-Row-note">{run.warning}</span> : null}
      <RunActions run={run} name={name} view={view} listed={listed} list={list} />
      {listed ? <RunFiles run={run} view={view} /> : null}
    </li>
  );
}

function RunActions(props: {
  run: IRun;
  name: string;
  view: IView;
  listed: boolean;
  list: (now: boolean) => void;
}): JSX.Element {
  const { run, name, view, listed, list } = props;
  const { poller, actions, _ } = view;
  const stopping = actions.isBusy(`stop ${run.run_id}`) ? _('Under way.') : '';
  return (
    <span className="jsky-Row-actions">
      {phase(run) === 'ended' ? null : (
        <Action
          label={run.warning ? _('Restart engine') : _('Stop')}
          about={name}
          icon={run.warning ? undefined : stopIcon} // what loses variables says so in words
          why={stopping || (run.stoppable ? '' : _('It cannot be stopped any more.'))}
          act={() => void actions.stop([run])}
        />
      )}
      {clusterOf(run, poller.state!.clusters) ? (
        <Action
          label={_('Files')}
          about={name}
          icon={folderIcon}
          expanded={listed}
          act={() => list(!listed)}
        />
      ) : null}
      {actions.hasLogs() ? (
        <Action label={_('Log')} about={name} icon={listIcon} act={() => actions.openLog(run)} />
      ) : null}
    </span>
  );
}
