/** Tab of clusters: state and price of each, with nodes and actions when opened. */

import React, { useEffect, useState } from 'react';

import type { ICluster, IGpu, INode, IState, IMetrics } from './api';
import type { Actions } from './actions';
import {
  clusterMark,
  disabledReason,
  ending,
  endsSoon,
  ratePlus,
  spentBy,
  stopFacts,
  todayLine
} from './selectors';
import { Action, Empty, DetailList, Mark, useSignal, useTick } from './components';
import { Files } from './files';
import { Sparkline } from './sparkline';
import type { StatePoller } from './statePoller';
import { gib, money, rate, span, Translate, when } from './format';

export interface IView {
  poller: StatePoller;
  actions: Actions;
  _: Translate;
}

const EXAMPLE = '%%sky --cpus 2\nprint("on a cluster")';

export function Clusters({ view, open }: { view: IView; open: Set<string> }): JSX.Element {
  const { poller, actions, _ } = view;
  useSignal(actions.changed);
  const state = poller.state!;
  const [, redraw] = useState(0);
  const { clusters } = state;
  useTick(clusters.length > 0);
  const toggle = (name: string) => {
    if (!open.delete(name)) open.add(name);
    redraw(n => n + 1);
  };
  return (
    <>
      <Totals state={state} view={view} />
      {clusters.length ? (
        <ul className="jsky-Panel-list" aria-label={_('Clusters')}>
          {clusters.map(one => (
            <Cluster
              key={`${one.name} ${one.created}`}
              cluster={one}
              state={state}
              view={view}
              opened={open.has(one.name)}
              toggle={() => toggle(one.name)}
            />
          ))}
        </ul>
      ) : (
        <Empty
          text={_('No cluster is up. This cell would start one:')}
          example={EXAMPLE}
          why={actions.noCellReason()}
          insert={line => void actions.insert(line)}
          _={_}
        />
      )}
      {actions.hasForm() ? (
        <p>
          <Action
            label={_('New cluster…')}
            why={actions.noCellReason()}
            act={() => actions.newCluster()}
          />
        </p>
      ) : null}
    </>
  );
}

function Totals({ state, view }: { state: IState; view: IView }): JSX.Element {
  const { poller, _ } = view;
  const up = state.clusters.some(one => ['up', 'starting', 'stopped'].includes(one.state));
  const asOf = _('as of %1', new Date(poller.receivedAt * 1000).toLocaleTimeString());
  return (
    <p className="jsky-Panel-totals">
      <b>{up ? ratePlus(state, _) : _('No cost now')}</b>
      <span className={state.today.over ? 'jsky-mod-bad' : undefined}>{todayLine(state, _)}</span>
      <span className="jsky-Panel-quiet">{asOf}</span>
    </p>
  );
}

function Cluster(props: {
  cluster: ICluster;
  state: IState;
  view: IView;
  opened: boolean;
  toggle: () => void;
}): JSX.Element {
  const { cluster, state, view, opened, toggle } = props;
  const { poller, _ } = view;
  const now = poller.now();
  const spent = spentBy(cluster, state.at, now);
  const details = [
    cluster.price === 0 ? _('free') : rate(cluster.price, _),
    spent === null ? _('cost unknown') : _('%1 so far', money(spent, _)),
    cluster.state === 'up' ? _('for %1', span(now - cluster.created, _)) : ''
  ];
  const stop = cluster.stopped ? stopFacts(cluster.stopped, now, _) : [];
  const body = `jsky-cluster-${cluster.name}`;
  return (
    <li className="jsky-Cluster" data-jsky-cluster={cluster.name}>
      <button
        type="button"
        className="jsky-Cluster-head"
        aria-expanded={opened}
        aria-controls={opened ? body : undefined}
        onClick={toggle}
      >
        <span className="jsky-Cluster-name">
          <span className="jsky-Panel-twist" aria-hidden="true">
            {opened ? '▾' : '▸'}
          </span>
          <b>{cluster.name}</b>
          <Mark mark={clusterMark(cluster.state, _)} />
        </span>
        <span>{cluster.where}</span>
        <DetailList details={details} />
        {stop.length ? <DetailList details={stop} /> : null}
        <span className={endsSoon(cluster, state.at, now) ? 'jsky-mod-warn' : 'jsky-Panel-quiet'}>
          {ending(cluster, state.at, now, _)}
        </span>
        {cluster.note ? <span className="jsky-Panel-note">{cluster.note}</span> : null}
      </button>
      {opened ? (
        <div id={body} className="jsky-Cluster-body">
          {cluster.stopped ? (
            <StoppedActions cluster={cluster} view={view} />
          ) : (
            <>
              <Nodes cluster={cluster} view={view} />
              <ClusterDetails cluster={cluster} view={view} runs={state.runs} />
              <Files cluster={cluster} view={view} />
            </>
          )}
          <p className="jsky-Panel-quiet">
            {cluster.resources ? _('Asked for: %1. ', cluster.resources) : ''}
            {cluster.price_origin && cluster.cloud !== 'local' ? (
              <span title={cluster.price_detail || undefined}>
                {_('Price: %1.', cluster.price_origin)}
              </span>
            ) : null}
          </p>
        </div>
      ) : null}
    </li>
  );
}

function StoppedActions({ cluster, view }: { cluster: ICluster; view: IView }): JSX.Element {
  const { actions, _ } = view;
  const { name } = cluster;
  const busy = (action: string) => (actions.isBusy(`${action} ${name}`) ? _('Under way.') : '');
  return (
    <div className="jsky-Panel-actions" role="group" aria-label={_('What can be done with %1', name)}>
      <Action
        label={_('Start')}
        about={name}
        why={disabledReason('start', cluster, _) || busy('start') || busy('down')}
        act={() => void actions.start(cluster)}
      />
      <Action label={_('Launch log')} about={name} act={() => void actions.launchLog(cluster)} />
      <Action
        label={busy('down') ? _('Deleting…') : _('Delete…')}
        about={name}
        danger
        why={disabledReason('down', cluster, _) || busy('down') || busy('start')}
        act={() => void actions.down(cluster)}
      />
    </div>
  );
}

function ClusterDetails(props: { cluster: ICluster; view: IView; runs: IState['runs'] }): JSX.Element {
  const { cluster, view, runs } = props;
  const { actions, _ } = view;
  const { name } = cluster;
  const its = runs.filter(run => run.cluster === name && run.ended === null);
  const stoppable = its.filter(run => run.stoppable);
  const busy = (action: string) => (actions.isBusy(`${action} ${name}`) ? _('Under way.') : '');
  const stuck = its.length && !stoppable.length ? _('It cannot be stopped any more.') : '';
  return (
    <div className="jsky-Panel-actions" role="group" aria-label={_('What can be done with %1', name)}>
      <Action
        label={its.length > 1 ? _('Stop cells') : _('Stop cell')}
        about={name}
        why={disabledReason('stop', cluster, _) || stuck}
        act={() => void actions.stop(stoppable)}
      />
      <Action
        label={_('Extend…')}
        about={name}
        why={disabledReason('extend', cluster, _) || busy('extend')}
        act={() => void actions.extend(cluster)}
      />
      <Action
        label={_('Insert cell')}
        about={name}
        why={disabledReason('insert', cluster, _) || actions.noCellReason()}
        act={() => void actions.insertFor(cluster)}
      />
      <Action
        label={_('Copy SSH line')}
        about={name}
        why={disabledReason('ssh', cluster, _) || busy('ssh')}
        act={() => void actions.copySsh(cluster)}
      />
      <Action label={_('Launch log')} about={name} act={() => void actions.launchLog(cluster)} />
      <Action
        label={busy('down') ? _('Ending…') : _('End cluster…')}
        about={name}
        danger
        why={disabledReason('down', cluster, _) || busy('down')}
        act={() => void actions.down(cluster)}
      />
    </div>
  );
}

/** Metrics of a cluster's nodes, polled while it is visible. */
function useMetrics(view: IView, cluster: ICluster): IMetrics | string {
  const { poller, _ } = view;
  const [metrics, setMetrics] = useState<IMetrics | string>(_('Asking its nodes…'));
  const up = cluster.state === 'up';
  useEffect(() => {
    if (!up) return undefined;
    let timer: ReturnType<typeof setTimeout>;
    let gone = false;
    const ask = async () => {
      if (!document.hidden) {
        const answer = await poller.api.metrics(cluster.name).catch(error => String(error.message));
        if (gone) return;
        setMetrics(before =>
          typeof answer === 'string' && typeof before !== 'string' ? before : answer
        );
      }
      timer = setTimeout(ask, poller.seconds * 1000);
    };
    void ask();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [cluster.name, cluster.created, up]);
  return up ? metrics : _('Its nodes are not up.');
}

function Nodes({ cluster, view }: { cluster: ICluster; view: IView }): JSX.Element {
  const { _ } = view;
  const metrics = useMetrics(view, cluster);
  if (typeof metrics === 'string') return <p className="jsky-Panel-quiet">{metrics}</p>;
  if (!metrics.nodes.length) return <p className="jsky-Panel-quiet">{_('Its nodes say nothing yet.')}</p>;
  const gpus = metrics.nodes.some(node => node.gpus.length);
  return (
    <table className="jsky-Panel-table jsky-Nodes">
      <caption className="jsky-Panel-quiet">
        {_('Nodes, measured at %1', when(metrics.at, view.poller.now()))}
      </caption>
      <thead>
        <tr>
          <th scope="col">{_('Node')}</th>
          <th scope="col">{_('CPU')}</th>
          <th scope="col">{_('Memory')}</th>
          {gpus ? <th scope="col">{_('GPU')}</th> : null}
        </tr>
      </thead>
      <tbody>
        {metrics.nodes.map(node => (
          <Node key={node.rank} node={node} gpus={gpus} period={metrics.period} _={_} />
        ))}
      </tbody>
    </table>
  );
}

const percent = (value: number) => `${Math.round(value)} %`;

function Node(props: { node: INode; gpus: boolean; period: number; _: Translate }): JSX.Element {
  const { node, gpus, period, _ } = props;
  const seconds = (values: unknown[]) => Math.max(0, values.length - 1) * period;
  const total = node.memory_total === null ? '' : ` / ${gib(node.memory_total, _)}`;
  return (
    <tr>
      <th scope="row" title={node.host}>
        {node.rank}
      </th>
      <td>
        <Sparkline
          what={_('CPU of node %1', node.rank)}
          values={node.cpu}
          top={100}
          seconds={seconds(node.cpu)}
          say={percent}
          _={_}
        />
      </td>
      <td title={total ? _('of %1', gib(node.memory_total, _)) : undefined}>
        <Sparkline
          what={_('Memory of node %1', node.rank)}
          values={node.memory}
          top={node.memory_total}
          seconds={seconds(node.memory)}
          say={value => gib(value, _)}
          _={_}
        />
      </td>
      {gpus ? (
        <td>
          {node.gpus.map((gpu, at) => (
            <Gpu key={at} gpu={gpu} at={at} rank={node.rank} seconds={seconds(gpu.use)} _={_} />
          ))}
        </td>
      ) : null}
    </tr>
  );
}

function Gpu(props: {
  gpu: IGpu;
  at: number;
  rank: number;
  seconds: number;
  _: Translate;
}): JSX.Element {
  const { gpu, at, rank, seconds, _ } = props;
  const used = gpu.memory.length ? gpu.memory[gpu.memory.length - 1] : null;
  const memory = _('%1 of %2 of its memory', gib(used, _), gib(gpu.memory_total, _));
  return (
    <div title={`${gpu.name} · ${memory}`}>
      <Sparkline
        what={_('GPU %1 of node %2, %3', at, rank, gpu.name)}
        values={gpu.use}
        top={100}
        seconds={seconds}
        say={percent}
        _={_}
      />
    </div>
  );
}
