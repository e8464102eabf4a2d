package layout

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var testFunction = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)

// compatibilitySection is a table of docs/user/compatibility.md.
type compatibilitySection struct {
	Section  string                 `json:"section"`
	Features []compatibilityFeature `json:"features"`
}

// compatibilityFeature is a feature of Kubernetes, what shows that it works, and how it differs.
type compatibilityFeature struct {
	Feature    string   `json:"feature"`
	Evidence   []string `json:"evidence"`
	Deviations []struct {
		What   string `json:"what"`
		Reason string `json:"reason"`
	} `json:"deviations"`
}

// TestCompatibilityTable compares the tables of docs/user/compatibility.md with
// testdata/compatibility.yaml, and checks that the tests, make targets and files in it exist. Each
// table stands between a begin and an end comment with the name of its section.
func TestCompatibilityTable(t *testing.T) {
	root := moduleRoot(t)
	data, err := os.ReadFile(filepath.Join("testdata", "compatibility.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var sections []compatibilitySection
	if err := yaml.UnmarshalStrict(data, &sections); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "docs", "user", "compatibility.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := evidenceIn(t, root)
	want := string(page)
	for _, section := range sections {
		startMark, endMark := "<!-- begin: "+section.Section+" -->\n", "<!-- end -->\n"
		head, remaining, ok := strings.Cut(want, startMark)
		_, tail, ended := strings.Cut(remaining, endMark)
		if !ok || !ended {
			t.Fatalf("%s has no place for the table %q", file, section.Section)
		}
		want = head + startMark + compatibilityTable(t, section, found) + endMark + tail
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("%s differs from libs/layout/testdata/compatibility.yaml; run go test ./libs/layout -run TestCompatibilityTable -update", file)
	}
}

// compatibilityTable returns the table of a section, with a row for each deviation and for each
// feature without deviations.
func compatibilityTable(t *testing.T, section compatibilitySection, found evidence) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("| feature | evidence | deviation | reason |\n|---|---|---|---|\n")
	for _, feature := range section.Features {
		if feature.Feature == "" || len(feature.Evidence) == 0 {
			t.Errorf("%s: got an incomplete feature %+v", section.Section, feature)
		}
		var links []string
		for _, name := range feature.Evidence {
			link, err := found.link(name)
			if err != nil {
				t.Errorf("%s: %s: %v", section.Section, feature.Feature, err)
			}
			links = append(links, link)
		}
		shown := feature.Feature + " | " + strings.Join(links, ", ")
		if len(feature.Deviations) == 0 {
			fmt.Fprintf(&out, "| %s | none | |\n", shown)
		}
		for i, deviation := range feature.Deviations {
			if deviation.What == "" || deviation.Reason == "" {
				t.Errorf("%s: %s: got an incomplete deviation %+v", section.Section, feature.Feature, deviation)
			}
			if i > 0 {
				shown = " |" // the row continues the feature above
			}
			fmt.Fprintf(&out, "| %s | %s | %s |\n", shown, deviation.What, deviation.Reason)
		}
	}
	return out.String()
}

// evidence is what the tables may name. Files and the folders of tests are relative to root.
type evidence struct {
	root, makefile string
	tests          map[string][]string // the files of each test
}

// evidenceIn returns the tests of all modules below root, and its Makefile.
func evidenceIn(t *testing.T, root string) evidence {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := evidence{root, string(makefile), map[string][]string{}}
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		source, err := os.ReadFile(file)
		for _, m := range testFunction.FindAllStringSubmatch(string(source), -1) {
			found.tests[m[1]] = append(found.tests[m[1]], filepath.ToSlash(relative))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// link returns a test, make target or file as text of docs/user/compatibility.md.
func (e evidence) link(name string) (string, error) {
	if target, ok := strings.CutPrefix(name, "make "); ok {
		if !strings.Contains(e.makefile, "\n"+target+":") {
			return "", fmt.Errorf("make target %s does not exist", target)
		}
		return "`" + name + "`", nil
	}
	folder, test := "", name
	if i := strings.LastIndex(name, ".Test"); i >= 0 {
		folder, test = name[:i], name[i+1:]
	}
	if !strings.HasPrefix(test, "Test") {
		_, err := os.Stat(filepath.Join(e.root, name))
		return fmt.Sprintf("[%s](../../%s)", path.Base(name), name), err
	}
	files := slices.DeleteFunc(slices.Clone(e.tests[test]), func(file string) bool {
		return folder != "" && path.Dir(file) != folder
	})
	if len(files) != 1 {
		return "", fmt.Errorf("test %s: got files %q, want one; FOLDER.%s selects among several", name, files, test)
	}
	return fmt.Sprintf("[`%s`](../../%s)", test, files[0]), nil
}
