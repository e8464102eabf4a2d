// Command coverage writes the coverage of packages by their own tests, as `go test
// -coverprofile` found it, into a page: a table with a row for each room, which is a
// folder of libs, deploy or cmd, a service, or a folder of a service's internal. Rows of
// rooms that the profile does not have stay as they are.
//
//	coverage -profile cover.out -page docs/testing.md
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	begin = "| room | statements | reached | least of its packages |\n|---|---|---|---|\n"
	// whole is what a module's paths begin with.
	whole = "binnacle/"
)

// tally is how many statements there are, and were reached.
type tally struct{ all, reached int }

func (t *tally) add(o tally) { t.all += o.all; t.reached += o.reached }

func (t tally) percent() float64 {
	if t.all == 0 {
		return 100
	}
	return 100 * float64(t.reached) / float64(t.all)
}

func main() {
	profile := flag.String("profile", "cover.out", "what go test -coverprofile wrote")
	page := flag.String("page", "docs/testing.md", "page that has the table")
	flag.Parse()
	if err := run(*profile, *page); err != nil {
		fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(1)
	}
}

func run(profile, page string) error {
	f, err := os.Open(profile)
	if err != nil {
		return err
	}
	defer f.Close()
	packages, err := read(f)
	if err != nil {
		return fmt.Errorf("%s: %w", profile, err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	renewed, err := renew(string(text), rows(packages))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(renewed), 0o644)
}

// read takes up a profile, by package. A block that several test binaries ran counts
// once.
func read(r io.Reader) (map[string]tally, error) {
	type block struct {
		statements int
		reached    bool
	}
	blocks := map[string]block{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(line, "mode: ") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 || !strings.HasPrefix(line, whole) || !strings.Contains(fields[0], ":") {
			return nil, fmt.Errorf("line %d is no block: %q", n, line)
		}
		statements, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		count, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		blocks[fields[0]] = block{statements, count > 0 || blocks[fields[0]].reached}
	}
	packages := map[string]tally{}
	for where, b := range blocks {
		file, _, _ := strings.Cut(strings.TrimPrefix(where, whole), ":")
		t := tally{all: b.statements}
		if b.reached {
			t.reached = b.statements
		}
		sum := packages[path.Dir(file)]
		sum.add(t)
		packages[path.Dir(file)] = sum
	}
	return packages, lines.Err()
}

// room is where a package belongs.
func room(pkg string) string {
	parts := strings.Split(pkg, "/")
	if len(parts) > 3 && parts[0] == "services" && parts[2] == "internal" {
		return strings.Join(parts[:4], "/")
	}
	return strings.Join(parts[:min(len(parts), 2)], "/")
}

// rows are the lines of the table, by room.
func rows(packages map[string]tally) map[string]string {
	rooms := map[string][]string{}
	for pkg := range packages {
		rooms[room(pkg)] = append(rooms[room(pkg)], pkg)
	}
	out := map[string]string{}
	for name, members := range rooms {
		var sum tally
		for _, pkg := range members {
			sum.add(packages[pkg])
		}
		least := ""
		if len(members) > 1 {
			pkg := slices.MinFunc(members, func(a, b string) int {
				return cmp.Or(cmp.Compare(packages[a].percent(), packages[b].percent()), cmp.Compare(a, b))
			})
			least = fmt.Sprintf("`%s` %.0f %%", cmp.Or(strings.TrimPrefix(strings.TrimPrefix(pkg, name), "/"), "."), packages[pkg].percent())
		}
		out[name] = fmt.Sprintf("| `%s` | %d | %.0f %% | %s |\n", name, sum.all, sum.percent(), least)
	}
	return out
}

// renew puts rows in the place of those of the same rooms.
func renew(page string, fresh map[string]string) (string, error) {
	before, rest, found := strings.Cut(page, begin)
	if !found {
		return "", fmt.Errorf("it has no table that begins with\n%s", begin)
	}
	table := map[string]string{}
	for strings.HasPrefix(rest, "| `") {
		line, after, _ := strings.Cut(rest, "\n")
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		table[name], rest = line+"\n", after
	}
	maps.Copy(table, fresh)
	var b strings.Builder
	b.WriteString(before + begin)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		b.WriteString(table[name])
	}
	return b.String() + rest, nil
}
