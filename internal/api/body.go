package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/retryplane/retryplane/pkg/wire"
)

// strict and lenient say what a body's unknown fields mean: an operator's typo must not pass silently, a newer
// instance's news must not stop its syncs.
const (
	lenient = false
	strict  = true
)

// read decodes the JSON body of a request into v, which must be a pointer to a struct. The error is a problem.
func read(c *gin.Context, v any, strictly bool) error {
	r := c.Request
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return problem(http.StatusUnsupportedMediaType, wire.CodeMediaType, "the body must be application/json")
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return problem(http.StatusUnsupportedMediaType, wire.CodeMediaType, "the body must not be compressed")
	}
	if r.ContentLength > wire.MaxBody {
		return tooLarge(c)
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, r.Body, wire.MaxBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge(c)
	}
	if err != nil {
		return malformed("the body ended early")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(v); err != nil {
		return undecodable(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return malformed("the body goes on after its JSON value")
	}
	if strictly {
		if bytes.Equal(bytes.TrimSpace(body), []byte("null")) { // decodes into nothing, which as a policy means all defaults
			return malformed("the body has the wrong type", wire.ProblemField{Field: "body", Limit: "an object"})
		}
		if fields := unknownFields(body, reflect.TypeOf(v).Elem(), "", nil); len(fields) > 0 {
			return problem(http.StatusBadRequest, wire.CodeMalformed, "the body has unknown fields", fields...)
		}
	}
	return nil
}

func tooLarge(c *gin.Context) error {
	c.Header("Connection", "close") // the rest of the body is not worth reading
	return problem(http.StatusRequestEntityTooLarge, wire.CodeTooLarge, fmt.Sprintf("a body holds at most %d bytes", wire.MaxBody),
		wire.ProblemField{Field: "body", Limit: fmt.Sprintf("at most %d bytes", wire.MaxBody)})
}

func malformed(detail string, fields ...wire.ProblemField) error {
	return problem(http.StatusBadRequest, wire.CodeMalformed, detail, fields...)
}

func undecodable(err error) error {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := te.Field
		if field == "" {
			field = "body"
		}
		return malformed(fmt.Sprintf("%s has the wrong type", field), wire.ProblemField{Field: field, Limit: kindWord(te.Type)})
	}
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		return malformed(fmt.Sprintf("the body is not JSON at byte %d", se.Offset))
	}
	return malformed("the body is not JSON")
}

func kindWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// unknownFields lists the members of a JSON object that t, a struct, has no field for; encoding/json would name only
// the first.
func unknownFields(body []byte, t reflect.Type, prefix string, fields []wire.ProblemField) []wire.ProblemField {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return fields
	}
	known := make(map[string]reflect.Type)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		known[name] = t.Field(i).Type
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		raw := members[name]
		sub, ok := known[name]
		if !ok {
			fields = append(fields, wire.ProblemField{Field: prefix + name, Limit: "no such field"})
			continue
		}
		for sub.Kind() == reflect.Pointer {
			sub = sub.Elem()
		}
		if sub.Kind() == reflect.Struct {
			fields = unknownFields(raw, sub, prefix+name+".", fields)
		}
	}
	return fields
}
