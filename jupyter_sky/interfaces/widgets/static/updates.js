// @ts-check
/** Updates of a view that is followed until what it shows has ended, and that can be acted on. */
import { errorText } from './base.js';

const PERIOD = 1000;
const SLOWEST = 15_000;

/**
 * Asks each second until the answer is `over`: more seldom while nobody answers, and not at all while
 * the page is hidden.
 *
 * @param {object} view
 * @param {HTMLElement} view.el
 * @param {import('./base.js').Ask} view.ask
 *   Answers `question` and `act` (`{verb}`) alike, with `over` and `headline`.
 * @param {string} view.question
 * @param {(answer: any) => void} view.show
 * @param {() => void} view.refresh called after each answer to the question
 * @param {HTMLElement} view.trouble gets the text of an error
 * @param {{say: (text: string) => void}} view.live
 * @param {import('./base.js').Translate} view._
 */
export function followUpdates({ el, ask, question, show, refresh, trouble, live, _ }) {
  /** @type {any} */
  let answer = null;
  let wait = PERIOD;
  /** @type {any} */
  let timer;
  const updates = {
    stopped: false,

    /** @param {string} verb */
    async act(verb) {
      try {
        answer = await ask('act', { verb });
        trouble.textContent = '';
        show(answer);
        live.say(_('Asked for: %1', verb));
        clearTimeout(timer);
        timer = setTimeout(turn, PERIOD);
      } catch (error) {
        trouble.textContent = `${errorText(error)}.`;
      }
    },

    dispose() {
      updates.stopped = true;
      clearTimeout(timer);
    }
  };

  async function turn() {
    const before = answer;
    try {
      if (el.ownerDocument.visibilityState !== 'hidden' || !answer) {
        answer = await ask(question);
        if (updates.stopped) {
          return;
        }
        [wait, trouble.textContent] = [PERIOD, ''];
        show(answer);
        refresh();
      }
    } catch (error) {
      if (updates.stopped) {
        return;
      }
      wait = Math.min(SLOWEST, wait * 2);
      trouble.textContent = [`${errorText(error)}.`, _('It is tried again.')].join(' ');
    }
    if (answer?.over && before?.over) {
      live.say(answer.headline); // once more after the end: the last figures come with it
      return;
    }
    clearTimeout(timer); // an action that came meanwhile has set one
    timer = setTimeout(turn, wait);
  }

  turn();
  return updates;
}
