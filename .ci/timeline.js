// Gives a timeline to Perfetto's own reader of traces, the one behind its public viewer, and asks it what it understood. The reader is a
// worker that speaks Perfetto's TraceProcessorRpc (protos/perfetto/trace_processor/trace_processor.proto): a stream of messages, each a field
// 1 of protobuf. The answers go back to the server that this page came from.
"use strict";
const APPEND = 1, FINALIZE = 2, QUERY = 3;
const CELL_NULL = 1, CELL_NUMBER = 2, CELL_FLOAT = 3, CELL_TEXT = 4;
const PIECE = 1 << 22;

const join = parts => {
    const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
    return all;
};
const varint = number => {
    const bytes = [];
    for (; number > 127; number = Math.floor(number / 128)) bytes.push(number % 128 | 128);
    return Uint8Array.from([...bytes, number]);
};
const number = (field, value) => join([varint(field * 8), varint(value)]);
const bytes = (field, value) => join([varint(field * 8 + 2), varint(value.length), value]);

// Calls `each` with number and value of every field of a message: a BigInt, the bytes, or for 64 fixed bits a number.
function fields(message, each) {
    const view = new DataView(message.buffer, message.byteOffset, message.length);
    let at = 0;
    const next = () => {
        let value = 0n;
        for (let shift = 0n; ; shift += 7n) {
            const byte = message[at++];
            value |= BigInt(byte & 127) << shift;
            if (byte < 128) return BigInt.asIntN(64, value);
        }
    };
    while (at < message.length) {
        const key = Number(next()), kind = key & 7, field = key >> 3;
        if (kind === 0) each(field, next());
        else if (kind === 1) { each(field, view.getFloat64(at, true)); at += 8; }
        else if (kind === 2) { const length = Number(next()); each(field, message.subarray(at, at + length)); at += length; }
        else throw new Error(`a field of kind ${kind}`);
    }
}
const packed = part => { const list = []; for (let at = 0; at < part.length;) { let end = at; while (part[end] > 127) end++;
    fields(join([varint(8), part.subarray(at, end + 1)]), (_, value) => list.push(value)); at = end + 1; } return list; };
const text = part => new TextDecoder().decode(part);

class Reader {
    constructor(worker) {
        const channel = new MessageChannel();
        worker.postMessage(channel.port2, [channel.port2]);
        this.port = channel.port1;
        this.sequence = 0;
        this.waiting = [];
        this.rest = new Uint8Array();
        this.port.onmessage = event => this.take(event.data);
    }
    // A reply may hold several messages.
    take(reply) {
        fields(reply, (field, message) => {
            const answer = {};
            fields(message, (inner, value) => { (answer[inner] ??= []).push(value); });
            if (answer[5]) throw new Error(text(answer[5][0]));
            this.waiting[0](answer);
        });
    }
    send(...parts) { this.port.postMessage(bytes(1, join([number(1, ++this.sequence), ...parts]))); }
    ask(kind, ...parts) {
        return new Promise(resolve => {
            this.waiting.push(answer => { this.waiting.shift(); resolve(answer); });
            this.send(number(2, kind), ...parts);
        });
    }
    async append(trace) {
        for (let at = 0; at < trace.length; at += PIECE) {
            const answer = await this.ask(APPEND, bytes(101, trace.subarray(at, at + PIECE)));
            fields(answer[201][0], (field, value) => { if (field === 2) throw new Error(text(value)); });
        }
    }
    // Rows of a query. Its answer may come in several messages, the last of which has a batch that says so.
    query(sql) {
        return new Promise((resolve, reject) => {
            const columns = [], cells = [];
            this.waiting.push(answer => {
                let is_last = false;
                fields(answer[203][0], (field, value) => {
                    if (field === 1) columns.push(text(value));
                    if (field === 2) reject(new Error(text(value)));
                    if (field === 3) is_last = this.batch(value, cells);
                });
                if (!is_last) return;
                this.waiting.shift();
                const rows = [];
                while (cells.length) rows.push(cells.splice(0, columns.length));
                resolve(rows);
            });
            this.send(number(2, QUERY), bytes(103, bytes(1, new TextEncoder().encode(sql))));
        });
    }
    batch(part, cells) {
        let kinds = [], numbers = [], floats = [], texts = [], is_last = false;
        fields(part, (field, value) => {
            if (field === 1) kinds = packed(value).map(Number);
            if (field === 2) numbers = packed(value).map(Number);
            if (field === 3) floats = value instanceof Uint8Array ? [...new Float64Array(value.slice().buffer)] : [...floats, value];
            if (field === 5) texts = text(value).split("\0");
            if (field === 6) is_last = value !== 0n;
        });
        for (const kind of kinds)
            cells.push(kind === CELL_NULL ? null : kind === CELL_NUMBER ? numbers.shift() : kind === CELL_FLOAT ? floats.shift() : texts.shift());
        return is_last;
    }
}

async function main() {
    const { engine, queries } = await (await fetch("/asked")).json();
    const trace = new Uint8Array(await (await fetch("/timeline")).arrayBuffer());
    const worker = new Worker(engine);
    worker.onerror = event => report({ error: event.message || "the reader could not be started" });
    const reader = new Reader(worker);
    await reader.append(trace);
    await reader.ask(FINALIZE);
    const answers = {};
    for (const [name, sql] of Object.entries(queries)) answers[name] = await reader.query(sql);
    return { answers };
}
const report = result => fetch("/answers", { method: "POST", body: JSON.stringify(result) });
main().then(report, error => report({ error: String(error) }));
