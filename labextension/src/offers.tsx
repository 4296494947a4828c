/** Tab of offers: those that can be launched now come first, each group by price. */

import React, { useEffect, useState } from 'react';

import { IOffer, IOffers, SkyError } from './api';
import type { IView } from './clusters';
import { Action, DetailList, Problem, useSettled, useSignal } from './components';
import { gib, rate, Translate, vcpus } from './format';

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
  // a new object each time: React compares states by identity
  const change = (part: Partial<IOfferQuery>) => setQuery(before => ({ ...before, ...part }));
  useEffect(() => void Object.assign(asked, query), [asked, query]);
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
          {_('Spot: cheaper, may be taken away at any time')}
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
      spot: query.spot,
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

const TIERS = ['now', 'account', 'never'] as const;

/** Heading of the offers of a tier. */
function tierTitle(tier: IOffer['launch'], _: Translate): string {
  switch (tier) {
    case 'now':
      return _('Can be launched now');
    case 'account':
      return _('Need an account: run %sky check in a cell');
    default:
      return _('Cannot be launched from here');
  }
}

function OfferTable({ answer, view }: { answer: IOffers; view: IView }): JSX.Element {
  const { _ } = view;
  const { offers } = answer;
  const notes = answer.notes.filter(note => !note.includes('to_pandas')); // for notebooks only
  return (
    <>
      <p className="jsky-Panel-quiet" role="status">
        {countText(answer, _)}
      </p>
      {offers.length ? (
        <table className="jsky-Panel-table jsky-Offers">
          <caption className="jsky-Panel-hidden">{_('Offers')}</caption>
          <thead>
            <tr>
              <th scope="col">{_('Machine')}</th>
              <th scope="col" className="jsky-Panel-number">
                {_('USD/h')}
              </th>
            </tr>
          </thead>
          {TIERS.map(tier => {
            const rows = offers.filter(offer => offer.launch === tier);
            return rows.length ? (
              <tbody key={tier}>
                <tr>
                  <th scope="rowgroup" colSpan={2}>
                    {tierTitle(tier, _)}
                  </th>
                </tr>
                {rows.map(offer => (
                  <OfferRow key={keyOf(offer)} offer={offer} view={view} />
                ))}
              </tbody>
            ) : null;
          })}
        </table>
      ) : null}
      {notes.map(note => (
        <p key={note} className="jsky-Panel-quiet">
          {note}
        </p>
      ))}
    </>
  );
}

function keyOf({ cloud, region, instance_type, spot, price }: IOffer): string {
  return [cloud, region, instance_type, spot, price].join(' ');
}

/** Number of offers above the table. */
export function countText({ offers, total, popular }: IOffers, _: Translate): string {
  if (!total) return _('Nothing fits: ask for less, or leave out the region.');
  if (popular) return _('Popular GPUs, the cheapest offer of each');
  const all = total.toLocaleString('en-US');
  if (total > offers.length) return _('%1 of %2 offers', offers.length, all);
  return total === 1 ? _('1 offer') : _('%1 offers', all);
}

function OfferRow({ offer, view }: { offer: IOffer; view: IView }): JSX.Element {
  const { actions, _ } = view;
  const { instance_type, cloud, region, launch, obstacle } = offer;
  return (
    <tr className="jsky-Offer" title={obstacle || undefined}>
      <td>
        <DetailList details={machine(offer)} />
        <span className="jsky-Panel-quiet">
          <DetailList details={[...size(offer, _), offer.spot ? _('spot') : '']} />
        </span>
        <span className="jsky-Panel-quiet" title={offer.origin_detail || undefined}>
          <DetailList details={[offer.place, offer.origin, offer.note ?? '']} />
        </span>
      </td>
      <td className="jsky-Panel-number">
        {rate(offer.price, _)}
        {launch === 'never' ? null : (
          <Action
            label={_('Insert cell')}
            about={`${instance_type} ${cloud} ${region}`}
            why={actions.noCellReason()}
            act={() => void actions.insert(`%%sky ${offer.line}`)}
          />
        )}
      </td>
    </tr>
  );
}

function size({ cpus, memory }: IOffer, _: Translate): string[] {
  return [cpus === null ? '' : vcpus(cpus, _), memory === null ? '' : gib(memory, _)];
}

/** Accelerators and type; some types name their accelerators. */
function machine({ gpus, instance_type }: IOffer): string[] {
  return [instance_type.includes(gpus) ? '' : gpus, instance_type];
}
