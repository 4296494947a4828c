/** Tab of offers that can be rented now, cheapest first. */

import React, { useEffect, useState } from 'react';

import { IOffer, IOffers, SkyError } from './api';
import type { IView } from './clusters';
import { Action, DetailList, Problem, useSettled, useSignal } from './components';
import { gib, rate, Translate } from './format';

const LIMIT = 20;

/** Last query, kept while the tab is hidden. */
export interface IOfferQuery {
  what: string;
  region: string;
  spot: boolean;
}

export function Offers({ view, asked }: { view: IView; asked: IOfferQuery }): JSX.Element {
  const { actions, _ } = view;
  useSignal(actions.changed);
  const [query, setQuery] = useState<IOfferQuery>({ ...asked });
  const change = (part: Partial<IOfferQuery>) => setQuery(Object.assign(asked, { ...query, ...part }));
  const [answer, problem, again] = useOffers(view, useSettled(query, 250));
  return (
    <>
      <form className="jsky-Panel-form" role="search" onSubmit={event => event.preventDefault()}>
        <label>
          {_('GPU or instance type')}
          <input
            type="search"
            value={query.what}
            placeholder={_('A100:8, T4, m5.large…')}
            onChange={event => change({ what: event.target.value })}
          />
        </label>
        <label>
          {_('Region')}
          <input
            type="search"
            value={query.region}
            placeholder={_('any, eu, us-east-1…')}
            onChange={event => change({ region: event.target.value })}
          />
        </label>
        <label className="jsky-Panel-check">
          <input
            type="checkbox"
            checked={query.spot}
            onChange={event => change({ spot: event.target.checked })}
          />
          {_('Spot: cheaper, may be taken away')}
        </label>
      </form>
      {problem ? <Problem error={problem} retry={again} _={_} /> : null}
      {answer && !problem ? <OfferTable answer={answer} view={view} /> : null}
      {!answer && !problem ? <p className="jsky-Panel-quiet">{_('Looking…')}</p> : null}
    </>
  );
}

function useOffers(view: IView, query: IOfferQuery): [IOffers | null, SkyError | null, () => void] {
  const [answer, setAnswer] = useState<IOffers | null>(null);
  const [problem, setProblem] = useState<SkyError | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let late = false;
    const asked = {
      what: query.what.trim(),
      region: query.region.trim(),
      spot: query.spot || undefined,
      limit: LIMIT
    };
    view.poller.api.offers(asked).then(
      found => {
        if (late) return;
        setAnswer(found);
        setProblem(null);
      },
      error => late || setProblem(error)
    );
    return () => {
      late = true;
    };
  }, [query, turn]);
  return [answer, problem, () => setTurn(turn + 1)];
}

function OfferTable({ answer, view }: { answer: IOffers; view: IView }): JSX.Element {
  const { actions, _ } = view;
  const { offers, total } = answer;
  const count =
    total > offers.length
      ? _('The cheapest %1 of %2 offers', offers.length, total.toLocaleString('en-US'))
      : _('%1 offers', total);
  return (
    <>
      <p className="jsky-Panel-quiet" role="status">
        {total ? count : _('Nothing fits: ask for less, or leave out the region.')}
        {offers.length ? ` · ${provenance(answer, _)}` : ''}
      </p>
      {offers.length ? (
        <table className="jsky-Panel-table jsky-Offers">
          <caption className="jsky-Panel-hidden">{_('Offers, cheapest first')}</caption>
          <thead>
            <tr>
              <th scope="col">{_('USD/h')}</th>
              <th scope="col">{_('What')}</th>
            </tr>
          </thead>
          <tbody>
            {offers.map(offer => (
              <tr key={`${offer.cloud} ${offer.region} ${offer.instance_type} ${offer.spot}`}>
                <td>
                  {rate(offer.price, _)}
                  <Action
                    label={_('Insert')}
                    about={`${offer.instance_type} ${offer.cloud} ${offer.region}`}
                    why={actions.noCellReason()}
                    act={() => void actions.insert(`%%sky ${offer.line}`)}
                  />
                </td>
                <td>
                  {offer.instance_type}
                  <span className="jsky-Panel-quiet">
                    <DetailList details={size(offer, _)} />
                  </span>
                  <span className="jsky-Panel-quiet">
                    <DetailList details={place(offer, _)} />
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : null}
      {answer.source ? (
        <details className="jsky-Panel-details">
          <summary>{_('Where these prices are from')}</summary>
          {answer.source.split(/, |\+/).map(source => (
            <span key={source}>{source}</span>
          ))}
          {_('Newer ones: jupyter sky catalog refresh')}
        </details>
      ) : null}
    </>
  );
}

function size(offer: IOffer, _: Translate): string[] {
  return [
    offer.gpus,
    offer.cpus === null ? '' : _('%1 vCPUs', offer.cpus),
    offer.memory === null ? '' : gib(offer.memory, _)
  ];
}

function place(offer: IOffer, _: Translate): string[] {
  const where = [offer.cloud, offer.region].filter(Boolean).join(' ');
  return [where, offer.spot ? _('spot') : '', offer.note ?? ''];
}

/** Where the prices are from and of when, as a range if they are of several days. */
export function provenance(answer: IOffers, _: Translate): string {
  const dates = answer.offers.map(offer => offer.date).filter(Boolean).sort();
  const [first, last] = [dates[0], dates[dates.length - 1]];
  if (!first) return _('prices of an unknown date');
  return first === last ? _('prices of %1', first) : _('prices of %1 to %2', first, last);
}
