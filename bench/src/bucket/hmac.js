// The buckets of the entities in a file, as Node computes them: one round for each line of standard
// input, answered with its nanoseconds and the sum of the buckets.
//
// usage: node hmac.js FILE KEY TOTAL
'use strict';

const {createHmac} = require('node:crypto');
const {readFileSync} = require('node:fs');
const {createInterface} = require('node:readline');

const [file, key, total] = process.argv.slice(2);
const entities = readFileSync(file, 'utf8').trimEnd().split('\n');

function bucket(key, data, total) {
  const hex = createHmac('md5', key).update(data).digest('hex').substring(0, 8);
  return (parseInt(hex, 16) % total) + 1;
}

function round(total) {
  const before = process.hrtime.bigint();
  let sum = 0;
  for (const entity of entities) {
    sum += bucket(key, entity, total);
  }
  return `${process.hrtime.bigint() - before} ${sum}`;
}

// The first one warms up.
round(Number(total));
console.log('ready');
createInterface({input: process.stdin}).on('line', () => console.log(round(Number(total))));
