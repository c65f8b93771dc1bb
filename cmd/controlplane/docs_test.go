package main

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestExampleConfig: the example in docs is one that the server takes, and shows every key.
func TestExampleConfig(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/retryplane.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (serveFlags{Config: config(t, string(text))}).settings(); err == nil || !strings.Contains(err.Error(), "tokens[0].sha256") {
		t.Errorf("the placeholder is taken for a token's hash: %v", err)
	}
	filled := strings.Replace(string(text), "<sha256 printed by controlplane token>", strings.Repeat("ab", 32), 1)
	s, err := (serveFlags{Config: config(t, filled)}).settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.listen != defaultListen || s.grace != defaultGrace || s.auth == nil {
		t.Errorf("got %+v, want the defaults and a token", s)
	}
	for of, known := range map[reflect.Type][]string{
		reflect.TypeFor[configFile](): keys["main.configFile"],
		reflect.TypeFor[fileToken]():  keys["main.fileToken"],
	} {
		if tagged := yamlKeys(of); !slices.Equal(tagged, known) {
			t.Errorf("%s has the keys %v, the mistakes know %v", of, tagged, known)
		}
		for _, key := range known {
			if !regexp.MustCompile(`(?m)^[ -]*` + key + `:`).Match(text) {
				t.Errorf("the example lacks %s", key)
			}
		}
	}
}

func yamlKeys(of reflect.Type) (all []string) {
	for i := range of.NumField() {
		if key := of.Field(i).Tag.Get("yaml"); key != "" {
			all = append(all, key)
		}
	}
	return all
}

// TestDocumentedFlags: docs/configuration.md names every flag of serve and its variable.
func TestDocumentedFlags(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var help bytes.Buffer
	if code := run(t.Context(), []string{"serve", "--help"}, &help, &help, func(string) string { return "" }); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	own, _, _ := strings.Cut(help.String(), "For the commands that call a server")
	found := regexp.MustCompile(`--[a-z-]+=|RETRYPLANE_[A-Z_]+`).FindAllString(own, -1)
	if len(found) < 12 {
		t.Fatalf("only %d flags and variables in the help: %q", len(found), found)
	}
	for _, name := range found {
		if name = strings.TrimSuffix(name, "="); !bytes.Contains(text, []byte("`"+name+"`")) {
			t.Errorf("docs/configuration.md lacks %s", name)
		}
	}
}
