// Package charts_test checks what can be checked of the Helm chart without Helm.
package charts_test

import (
	"encoding/json"
	"fmt"
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

// TestPlaceholders: what stands in the comments and the README for a token's hash is nobody's, and the schema refuses it.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	var schema struct {
		Properties struct {
			Tokens struct {
				Items struct {
					Properties map[string]struct {
						Pattern string `json:"pattern"`
					} `json:"properties"`
				} `json:"items"`
			} `json:"tokens"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(read(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	allowed := regexp.MustCompile(schema.Properties.Tokens.Items.Properties["sha256"].Pattern)
	if !allowed.MatchString(strings.Repeat("ab", 32)) {
		t.Errorf("%s refuses a hash", allowed)
	}
	for _, name := range []string{"values.yaml", "README.md"} {
		found := regexp.MustCompile(`sha256: (.*)`).FindAllStringSubmatch(string(read(t, name)), -1)
		if len(found) == 0 {
			t.Errorf("%s shows no token", name)
		}
		for _, m := range found {
			if allowed.MatchString(m[1]) {
				t.Errorf("%s: %s could be used as it stands", name, m[1])
			}
			if strings.Contains(m[1], ": ") {
				t.Errorf("%s: %s is no YAML, so whoever forgets it hears of YAML and not of the token", name, m[1])
			}
		}
	}
}

// TestImage: the Dockerfile builds what the chart runs, as the user that it runs as.
func TestImage(t *testing.T) {
	t.Parallel()
	dockerfile, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Pod struct {
			User  int `yaml:"runAsUser"`
			Group int `yaml:"runAsGroup"`
		} `yaml:"podSecurityContext"`
	}
	if err := yaml.Unmarshal(read(t, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	if language == nil {
		t.Fatal("go.mod names no version of Go")
	}
	for _, line := range []string{
		fmt.Sprintf("FROM golang:%s AS build", language[1]),
		"FROM scratch",
		fmt.Sprintf("USER %d:%d", values.Pod.User, values.Pod.Group),
		"EXPOSE 8080",
		`ENTRYPOINT ["/usr/local/bin/controlplane"]`,
	} {
		if !strings.Contains(string(dockerfile), line+"\n") {
			t.Errorf("the Dockerfile lacks %q", line)
		}
	}
	for _, f := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(dockerfile), -1) {
		if strings.Contains(f[1], "/") {
			t.Errorf("%s is not an image with a short name", f[1])
		}
	}
}
