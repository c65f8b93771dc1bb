// Package charts_test checks what can be checked of the Helm chart without Helm.
package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const chart = "retryplane"

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestChartParses(t *testing.T) {
	t.Parallel()
	var c struct {
		APIVersion string `yaml:"apiVersion"`
		Name       string `yaml:"name"`
		Version    string `yaml:"version"`
		AppVersion string `yaml:"appVersion"`
	}
	if err := yaml.Unmarshal(read(t, "Chart.yaml"), &c); err != nil {
		t.Fatal(err)
	}
	if c.APIVersion != "v2" || c.Name != chart || c.AppVersion == "" || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(c.Version) {
		t.Errorf("got %+v", c)
	}
}

// TestSchemaKnowsEveryValue: the schema refuses unknown keys, so a value it does not know could not be set.
func TestSchemaKnowsEveryValue(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.Unmarshal(read(t, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(read(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	compare(t, "", values, schema)
}

func compare(t *testing.T, at string, values, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil { // free-form: annotations, resources
		return
	}
	for k, v := range values {
		p, ok := properties[k].(map[string]any)
		if !ok {
			t.Errorf("values.schema.json lacks %s%s", at, k)
			continue
		}
		if sub, ok := v.(map[string]any); ok {
			compare(t, at+k+".", sub, p)
		}
	}
}

// TestTemplatesUseKnownValues finds misspelt values: Helm would take them for empty.
func TestTemplatesUseKnownValues(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.Unmarshal(read(t, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil || len(files) < 6 {
		t.Fatalf("got %d templates, %v", len(files), err)
	}
	used := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\.Values\.([A-Za-z.]+)`).FindAllStringSubmatch(string(text), -1) {
			path := strings.Split(m[1], ".")
			used[path[0]] = true
			var at any = values
			for _, k := range path {
				branch, _ := at.(map[string]any)
				next, ok := branch[k]
				if !ok {
					t.Errorf("%s: values.yaml lacks %s", f, m[1])
					break
				}
				at = next
			}
		}
	}
	for k := range values {
		if !used[k] {
			t.Errorf("no template uses %s", k)
		}
	}
}
