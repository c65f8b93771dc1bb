package main

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"
)

// event is one server-sent event.
type event struct {
	name string
	data string
}

// eventReader reads the events of one connection as the HTML standard describes them (section 9.2.6).
type eventReader struct {
	lines *bufio.Scanner
	heard func()        // called for every line, comments included: a sign of life
	retry time.Duration // what the server wants between two connections; 0 = it has not said
}

func newEventReader(body io.Reader, heard func()) *eventReader {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4096), maxAnswer)
	return &eventReader{lines: lines, heard: heard}
}

// next waits for an event. io.EOF = the server ended the stream; an event that it did not finish is dropped.
func (r *eventReader) next() (event, error) {
	var e event
	var data []string
	for r.lines.Scan() {
		r.heard()
		line := r.lines.Text()
		if line == "" {
			if data == nil {
				e.name = "" // nothing to tell
				continue
			}
			e.data = strings.Join(data, "\n")
			return e, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.name = value
		case "data":
			data = append(data, value)
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	if err := r.lines.Err(); err != nil {
		return event{}, err
	}
	return event{}, io.EOF
}
