// Server-sent events out of a fetch: EventSource cannot send a token.

export interface ServerEvent {
  name: string;
  data: string;
}

/**
 * Splits a text stream into events. Text comes in arbitrary pieces; only lines that have ended are looked at. A pending
 * line is kept as pieces, because a first state of megabytes arrives in hundreds of them.
 */
export class EventParser {
  private rest: string[] = [];
  private name = "";
  private data: string[] = [];

  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    let from = 0;
    for (;;) {
      const end = text.indexOf("\n", from);
      if (end < 0) break;
      this.rest.push(text.slice(from, end));
      from = end + 1;
      const line = this.rest.length === 1 ? this.rest[0]! : this.rest.join("");
      this.rest = [];
      const event = this.line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (event) events.push(event);
    }
    if (from < text.length) this.rest.push(text.slice(from));
    return events;
  }

  private line(line: string): ServerEvent | undefined {
    if (line === "") {
      const event = { name: this.name, data: this.data.join("\n") };
      this.name = "";
      this.data = [];
      return event.name ? event : undefined;
    }
    if (line.startsWith("event:")) this.name = line.slice(6).trim();
    else if (line.startsWith("data:")) this.data.push(line.slice(line[5] === " " ? 6 : 5));
    return undefined; // comments and retry: need nothing
  }
}
