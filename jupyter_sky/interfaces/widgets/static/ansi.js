// @ts-check
/**
 * Text of a terminal: colours (the SGR sequences of ECMA-48), and lines that are written over.
 */

/** A stretch of text in one style. @typedef {{text: string, style: string, colour: string}} Piece */

const SEQUENCE = /\x1b(?:\[([0-9;:?]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
const ON = new Map([[1, 'bold'], [2, 'faint'], [3, 'italic'], [4, 'underline'], [7, 'inverse'], [9, 'struck']]);
const OFF = new Map([[22, ['bold', 'faint']], [23, ['italic']], [24, ['underline']], [27, ['inverse']], [29, ['struck']]]);

/** The text without its sequences. @param {string} text */
export const plain = (text) => (text.includes('\x1b') ? text.replace(SEQUENCE, '') : text);

/**
 * Final text of a line: text after a carriage return overwrites the text before it.
 * @param {string} text
 * @example written('10%\r20%') === '20%'
 */
export function written(text) {
  if (!text.includes('\r')) {
    return text;
  }
  const layers = text.split('\r').filter((layer) => layer !== '');
  return layers[layers.length - 1] ?? '';
}

/** A log without colours, lines as they were at last. @param {string} text */
export const readable = (text) => text.split('\n').map((line) => plain(written(line))).join('\n');

/**
 * Cuts a line into stretches of one style each. `style` is a list of class words (`bold`, `fg-1` of
 * the 16 colours of a theme); `colour` is a CSS colour of the 256 or the 16 million others.
 *
 * @param {string} text
 * @returns {Piece[]}
 * @example pieces('a\x1b[31mb')[1].style === 'fg-1'
 */
export function pieces(text) {
  if (!text.includes('\x1b')) {
    return text ? [{ text, style: '', colour: '' }] : [];
  }
  /** @type {Piece[]} */
  const found = [];
  /** @type {Set<string>} */
  const words = new Set();
  let front = '';
  let colour = '';
  let last = 0;
  const push = (/** @type {string} */ part) => {
    if (part) {
      found.push({ text: part, style: [...words, front].filter(Boolean).join(' '), colour });
    }
  };
  for (const match of text.matchAll(SEQUENCE)) {
    push(text.slice(last, match.index));
    last = match.index + match[0].length;
    if (match[2] === 'm') {
      [front, colour] = styled(match[1], words, front, colour);
    }
  }
  push(text.slice(last));
  return found;
}

/**
 * @param {string} codes @param {Set<string>} words @param {string} front @param {string} colour
 * @returns {[string, string]}
 */
function styled(codes, words, front, colour) {
  const numbers = codes.split(/[;:]/).map(Number);
  while (numbers.length) {
    const code = /** @type {number} */ (numbers.shift());
    if (code === 0) {
      words.clear();
      [front, colour] = ['', ''];
    } else if (ON.has(code)) {
      words.add(/** @type {string} */ (ON.get(code)));
    } else if (OFF.has(code)) {
      OFF.get(code)?.forEach((word) => words.delete(word));
    } else if (code >= 30 && code <= 37) {
      [front, colour] = [`fg-${code - 30}`, ''];
    } else if (code >= 90 && code <= 97) {
      [front, colour] = [`fg-${code - 82}`, ''];
    } else if (code === 39) {
      [front, colour] = ['', ''];
    } else if (code === 38) {
      [front, colour] = many(numbers);
    } else if (code === 48) {
      many(numbers); // backgrounds are left out: a theme's text must stay legible on its own
    }
  }
  return [front, colour];
}

/** One of the 256 colours (`5;n`) or any (`2;r;g;b`). @param {number[]} numbers @returns {[string, string]} */
function many(numbers) {
  const kind = numbers.shift();
  if (kind === 2) {
    const [red, green, blue] = numbers.splice(0, 3);
    return ['', `rgb(${red || 0} ${green || 0} ${blue || 0})`];
  }
  const n = numbers.shift() ?? 0;
  if (n < 16) {
    return [`fg-${n}`, ''];
  }
  if (n > 231) {
    const grey = 8 + (n - 232) * 10;
    return ['', `rgb(${grey} ${grey} ${grey})`];
  }
  const level = (/** @type {number} */ part) => (part ? 55 + part * 40 : 0);
  const cube = n - 16;
  const parts = [Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level);
  return ['', `rgb(${parts.join(' ')})`];
}
