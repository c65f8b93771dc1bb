package client_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// packageDoc reads a package's documentation.
func packageDoc(t *testing.T, dir, path string) *doc.Package {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		f, err := parser.ParseFile(fset, dir+"/"+e.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// linkLike is a link to a name that go/doc did not find, which stays as it was written.
var linkLike = regexp.MustCompile(`\[\*?(?:[a-z]+\.)?[A-Z]\w*(?:\.[A-Z]\w*)?\]`)

// TestDocsNameWhatExists: a link in the documentation to something that was renamed is worse than none.
func TestDocsNameWhatExists(t *testing.T) {
	t.Parallel()
	const module = "github.com/retryplane/retryplane/"
	packages := map[string]*doc.Package{
		module + "pkg/client": packageDoc(t, ".", module+"pkg/client"),
		module + "pkg/policy": packageDoc(t, "../policy", module+"pkg/policy"),
	}
	p := packages[module+"pkg/client"]
	parse := p.Parser()

	check := func(where string, texts []comment.Text) {
		for _, text := range texts {
			switch text := text.(type) {
			case comment.Plain:
				for _, dead := range linkLike.FindAllString(string(text), -1) {
					t.Errorf("%s: %s is the name of nothing", where, dead)
				}
			case *comment.DocLink:
				if of := packages[text.ImportPath]; of != nil && !lookup(of, text.Recv, text.Name) {
					t.Errorf("%s: %s.%s %s is the name of nothing", where, text.ImportPath, text.Recv, text.Name)
				}
			}
		}
	}
	each(p, func(where, text string) {
		for _, block := range parse.Parse(text).Content {
			switch block := block.(type) {
			case *comment.Paragraph:
				check(where, block.Text)
			case *comment.List:
				for _, item := range block.Items {
					for _, b := range item.Content {
						check(where, b.(*comment.Paragraph).Text)
					}
				}
			}
		}
	})

	for _, name := range []string{"Client_Transport", "Client_Transport_payment", "Client_Flush", "Dependency_Do", "Do", "Retry", "OpenError", "Record", "WithCall", "LogEvents"} {
		if !hasExample(t, name) {
			t.Errorf("no example %s", name)
		}
	}
}

func lookup(p *doc.Package, recv, name string) bool {
	parse := p.Parser()
	return parse.LookupSym(strings.TrimPrefix(recv, "*"), name)
}

// each calls f with every doc comment of the package. Fields and constants have comments of their own in the syntax tree,
// which go/doc shows as code.
func each(p *doc.Package, f func(where, text string)) {
	f("package", p.Doc)
	values := func(of []*doc.Value) {
		for _, v := range of {
			f(strings.Join(v.Names, ", "), v.Doc)
		}
	}
	funcs := func(of []*doc.Func) {
		for _, fn := range of {
			f(fn.Name, fn.Doc)
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		f(typ.Name, typ.Doc)
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
}

// hasExample reports whether this package has a runnable example of the name: one whose output is checked.
func hasExample(t *testing.T, name string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "example_test.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range doc.Examples(f) {
		if e.Name == name && e.Output != "" {
			return true
		}
	}
	return false
}
