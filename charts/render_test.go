package charts_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// render fills the templates as Helm does, with the few of its functions that they use, and returns the objects by
// kind and name. It is no Helm; it finds wrong indents, unbalanced blocks and unknown functions in a second.
func render(t *testing.T, set map[string]any) (map[string]map[string]any, error) {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal(read(t, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	merge(values, set)
	root := template.New("").Option("missingkey=zero")
	root.Funcs(functions(root))
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := root.New(filepath.Base(f)).Parse(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	data := map[string]any{
		"Values":  values,
		"Release": map[string]any{"Name": "prod", "Namespace": "default", "Service": "Helm"},
		"Chart":   map[string]any{"Name": chart, "Version": "0.1.0", "AppVersion": "v1"},
	}
	objects := map[string]map[string]any{}
	for _, f := range files {
		var out bytes.Buffer
		if err := root.ExecuteTemplate(&out, filepath.Base(f), data); err != nil {
			return nil, err
		}
		if filepath.Ext(f) != ".yaml" {
			continue
		}
		for d := yaml.NewDecoder(&out); ; {
			var o map[string]any
			if err := d.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v\n%s", f, err, out.String())
			}
			if o != nil {
				objects[fmt.Sprint(o["kind"], " ", dig(o, "metadata", "name"))] = o
			}
		}
	}
	return objects, nil
}

func merge(into, from map[string]any) {
	for k, v := range from {
		sub, ok := v.(map[string]any)
		if at, both := into[k].(map[string]any); ok && both {
			merge(at, sub)
		} else {
			into[k] = v
		}
	}
}

func functions(root *template.Template) template.FuncMap {
	indent := func(n int, s string) string {
		pad := strings.Repeat(" ", n)
		return "\n" + pad + strings.ReplaceAll(s, "\n", "\n"+pad)
	}
	number := func(v any) int { return int(reflect.ValueOf(v).Convert(reflect.TypeFor[int]()).Int()) }
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := root.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"default": func(d, v any) any {
			if ok, _ := template.IsTrue(v); ok {
				return v
			}
			return d
		},
		"fail":    func(m string) (string, error) { return "", errors.New(m) },
		"nindent": indent,
		"toYaml": func(v any) (string, error) {
			var out strings.Builder
			e := yaml.NewEncoder(&out)
			e.SetIndent(2)
			err := e.Encode(v)
			return strings.TrimSuffix(out.String(), "\n"), err
		},
		"toJson":     func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
		"quote":      func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"sha256sum":  func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) },
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix": func(cut, s string) string { return strings.TrimSuffix(s, cut) },
		"contains":   func(part, s string) bool { return strings.Contains(s, part) },
		"int":        number,
		"add": func(all ...any) (sum int) {
			for _, v := range all {
				sum += number(v)
			}
			return sum
		},
	}
}

// dig follows keys and indexes; nil when there is nothing.
func dig(v any, path ...any) any {
	for _, k := range path {
		switch at := v.(type) {
		case map[string]any:
			v = at[fmt.Sprint(k)]
		case []any:
			i, ok := k.(int)
			if !ok || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

var tokens = []any{map[string]any{"name": "checkout", "sha256": strings.Repeat("ab", 32), "roles": []any{"report"}}}

func TestRender(t *testing.T) {
	t.Parallel()
	got, err := render(t, map[string]any{"tokens": tokens, "redis": map[string]any{"url": "redis://:s3cret@cache:6379/0"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Deployment prod-retryplane", "Secret prod-retryplane", "Secret prod-retryplane-redis", "Service prod-retryplane", "ServiceAccount prod-retryplane"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Fatalf("got %v, want %v", names, want)
	}
	pod := dig(got["Deployment prod-retryplane"], "spec", "template")
	container := dig(pod, "spec", "containers", 0)
	for _, c := range []struct{ got, want any }{
		{dig(got["Deployment prod-retryplane"], "spec", "replicas"), 2},
		{dig(container, "image"), "retryplane/controlplane:v1"},
		{dig(container, "livenessProbe", "httpGet", "path"), "/livez"},
		{dig(container, "readinessProbe", "httpGet", "path"), "/readyz"},
		{dig(container, "securityContext", "readOnlyRootFilesystem"), true},
		{dig(pod, "spec", "securityContext", "runAsNonRoot"), true},
		{dig(pod, "spec", "volumes", 0, "secret", "secretName"), "prod-retryplane"},
		{dig(pod, "spec", "terminationGracePeriodSeconds"), 25},
		{dig(got["Service prod-retryplane"], "spec", "selector"), dig(got["Deployment prod-retryplane"], "spec", "selector", "matchLabels")},
		{dig(got["Secret prod-retryplane-redis"], "stringData", "url"), "redis://:s3cret@cache:6379/0"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	if text := fmt.Sprint(got["Deployment prod-retryplane"]); strings.Contains(text, "s3cret") {
		t.Error("the password of Redis is in the Deployment")
	}
	var file struct {
		Tokens []any `yaml:"tokens"`
	}
	config, _ := dig(got["Secret prod-retryplane"], "stringData", "config.yaml").(string)
	if err := yaml.Unmarshal([]byte(config), &file); err != nil || !reflect.DeepEqual(file.Tokens, tokens) {
		t.Errorf("got the config file %q, %v", config, err)
	}
}

// TestRenderRefuses values whose pods could not start, or would not know of each other.
func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	redis := map[string]any{"url": "redis://cache"}
	for word, set := range map[string]map[string]any{
		"tokens or existingSecret": {"redis": redis},
		"set only one":             {"redis": redis, "tokens": tokens, "existingSecret": "mine"},
		"replicaCount":             {"tokens": tokens},
		"redis.existingSecret":     {"tokens": tokens, "redis": map[string]any{"url": "redis://cache", "existingSecret": "mine"}},
	} {
		if _, err := render(t, set); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want a refusal that says %q", err, word)
		}
	}
	got, err := render(t, map[string]any{"existingSecret": "mine", "replicaCount": 1, "preStopSleepSeconds": 5})
	if err != nil {
		t.Fatal(err)
	}
	if d := got["Deployment prod-retryplane"]; dig(d, "spec", "strategy", "type") != "Recreate" || len(got) != 3 {
		t.Errorf("got %v", got)
	}
}
