package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/retryplane/retryplane/internal/api"
)

// tokenFlags describe the token whose lines for the config file are printed.
type tokenFlags struct {
	Name         string   `default:"checkout" help:"Who will use it; appears as the actor of overrides."`
	Roles        []string `default:"report" help:"report: instances; read: dashboards; operate: overrides and policies."`
	Dependencies []string `help:"Limit it to dependencies by these globs, such as 'payments*'."`
}

// printToken prints a new random token. The config file gets only its hash, so a stolen file opens nothing.
func printToken(stdout, stderr io.Writer, f tokenFlags) int {
	token := "rp_" + rand.Text() + rand.Text() // 260 bits
	sum := sha256.Sum256([]byte(token))
	hash := hex.EncodeToString(sum[:])
	if _, err := api.NewAuth([]api.Token{{Name: f.Name, SHA256: hash, Roles: f.Roles, Dependencies: f.Dependencies}}); err != nil {
		for _, e := range unjoin(err) {
			fmt.Fprintf(stderr, "controlplane: --%s\n", strings.TrimPrefix(e.Error(), "tokens[0]."))
		}
		return exitUsage
	}

	var b strings.Builder
	fmt.Fprintf(&b, "token:  %s\n", token)
	fmt.Fprintf(&b, "sha256: %s\n\n", hash)
	fmt.Fprintf(&b, "Hand the token to its user; it cannot be shown again. Put these lines into the config file:\n\n")
	fmt.Fprintf(&b, "tokens:\n")
	fmt.Fprintf(&b, "  - name: %q\n", f.Name)
	fmt.Fprintf(&b, "    sha256: %s\n", hash)
	fmt.Fprintf(&b, "    roles: [%s]\n", strings.Join(f.Roles, ", "))
	if len(f.Dependencies) > 0 {
		quoted := make([]string, len(f.Dependencies))
		for i, d := range f.Dependencies {
			quoted[i] = fmt.Sprintf("%q", d)
		}
		fmt.Fprintf(&b, "    dependencies: [%s]\n", strings.Join(quoted, ", "))
	}
	if _, err := io.WriteString(stdout, b.String()); err != nil {
		return exitError
	}
	return exitOK
}
