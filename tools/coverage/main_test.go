package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const profile = `mode: atomic
binnacle/libs/rbac/rbac.go:1.1,2.2 3 1
binnacle/libs/rbac/rbac.go:3.1,4.2 1 0
binnacle/services/apiserver/internal/apply/a.go:1.1,2.2 4 0
binnacle/services/apiserver/internal/apply/a.go:1.1,2.2 4 7
binnacle/services/apiserver/internal/apply/deep/b.go:1.1,2.2 4 0
binnacle/services/apiserver/main.go:1.1,2.2 2 0
`

func TestTheTableIsRenewed(t *testing.T) {
	dir := t.TempDir()
	in, page := filepath.Join(dir, "cover.out"), filepath.Join(dir, "page.md")
	old := "before\n\n" + begin + "| `libs/abac` | 9 | 90 % |  |\n| `libs/rbac` | 1 | 1 % |  |\n\nafter\n"
	for path, text := range map[string]string{in: profile, page: old} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := "before\n\n" + begin + "| `libs/abac` | 9 | 90 % |  |\n" +
		"| `libs/rbac` | 4 | 75 % |  |\n" +
		"| `services/apiserver` | 2 | 0 % |  |\n" +
		"| `services/apiserver/internal/apply` | 8 | 50 % | `deep` 0 % |\n\nafter\n"
	for range 2 { // the second time nothing changes
		if err := run(in, page); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(page); err != nil || string(got) != want {
			t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
		}
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"another module": "other/x.go:1.1,2.2 1 1\n",
		"no block":       "binnacle/x.go\n",
		"no number":      "binnacle/x.go:1.1,2.2 one 1\n",
		"no count":       "binnacle/x.go:1.1,2.2 1 -1\n",
	} {
		if _, err := read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := renew("no table", nil); err == nil {
		t.Error("a page without a table is taken")
	}
}
