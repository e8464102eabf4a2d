package rules_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/objectmeta"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// step is a write recorded from a reference server, or the schemas for the following steps.
type step struct {
	// Schema holds the schemas of the definition, by version.
	Schema map[string]*v1.JSONSchemaProps `json:"schema"`

	// Name is the name of the test case; empty if the step only sets schemas.
	Name string `json:"name"`
	// Version is the version in which Doc is written.
	Version string `json:"version"`
	// Status is set if the write is to the status subresource.
	Status bool `json:"status"`
	// Doc is the written document. Raw replaces it if the body is not valid JSON.
	Doc json.RawMessage `json:"doc"`
	Raw string          `json:"raw"`
	// Old is the object before an update.
	Old json.RawMessage `json:"old"`

	// Errors and Message are the causes and the message of the server's Status, if it rejects the
	// write.
	Errors   []string `json:"errors"`
	Message  string   `json:"message"`
	Warnings []string `json:"warnings"`
	// Normalized is the stored object without metadata and type. Spec is its spec, if only that is
	// recorded.
	Normalized json.RawMessage `json:"shaped"`
	Spec       json.RawMessage `json:"shaped spec"`
}

// servedVersion is a served version of a definition.
type servedVersion struct {
	program *schema.Program
	rules   *rules.Rules
}

// compileVersion compiles a schema and its rules.
func compileVersion(t *testing.T, schemaProps *v1.JSONSchemaProps) servedVersion {
	t.Helper()
	program, err := schema.Compile(schemaProps)
	if err != nil {
		t.Fatal(err)
	}
	return servedVersion{program: program, rules: compiler.Compile(schemaProps, program)}
}

// compiler is shared by the tests of this package.
var compiler = rules.NewCompiler()

// TestRecordedWritesMatchReferenceServer checks that writes to custom resources give the errors,
// warnings and stored objects of a kube-apiserver.
func TestRecordedWritesMatchReferenceServer(t *testing.T) {
	files, err := filepath.Glob("testdata/[cp]*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d recordings, %v, want at least one", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			var recorded struct {
				Steps []step `json:"steps"`
			}
			readJSON(t, file, &recorded)
			versions := map[string]servedVersion{}
			for _, recordedStep := range recorded.Steps {
				for name, schema := range recordedStep.Schema {
					versions[name] = compileVersion(t, schema)
				}
				if recordedStep.Name != "" {
					t.Run(recordedStep.Name, func(t *testing.T) { recordedStep.checkWrite(t, versions[recordedStep.Version]) })
				}
			}
		})
	}
}

// readJSON decodes a file of testdata.
func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// checkWrite checks that the write gives the recorded result.
func (s *step) checkWrite(t *testing.T, version servedVersion) {
	data := []byte(s.Doc)
	if s.Raw != "" {
		data = []byte(s.Raw)
	}
	unknown, problem := cleanMetadata(t, data)
	var normalized schema.NormalizedDoc
	if problem == "" {
		normalized, problem = normalize(t, version, data)
	}
	if problem != "" {
		_, want, _ := strings.Cut(s.Message, "cannot be handled as a Gadget: ")
		if problem != want {
			t.Errorf("%s: got error %s\nwant %s", data, problem, want)
		}
		return
	}
	var warnings []string
	for _, path := range append(unknown, normalized.Unknown...) {
		warnings = append(warnings, `unknown field "`+path+`"`)
	}
	if _, strict, ok := strings.Cut(s.Message, "strict decoding error: "); ok {
		if got := strings.Join(warnings, ", "); got != strict {
			t.Errorf("%s: got strict decoding error %s\nwant %s", data, got, strict)
		}
		return
	}
	errs := s.findErrors(t, version, normalized.Doc, &warnings)
	got := errorTexts(errs)
	accepted := s.Errors == nil && s.Message == ""
	if s.Errors != nil && !slices.Equal(got, s.Errors) || accepted && len(got) > 0 {
		t.Errorf("%s: got errors\n%s\nwant\n%s", data, strings.Join(got, "\n"), strings.Join(s.Errors, "\n"))
	}
	if _, want, _ := strings.Cut(s.Message, " is invalid: "); s.Message != "" &&
		replaceVariableTexts(errs.ToAggregate().Error()) != want {
		t.Errorf("%s: got message %v\nwant %s", data, errs.ToAggregate(), want)
	}
	if accepted {
		s.checkStored(t, normalized.Doc, warnings)
	}
}

// cleanMetadata returns the paths of unknown fields of the metadata of a resource.
func cleanMetadata(t *testing.T, data []byte) (unknown []string, problem string) {
	t.Helper()
	doc, err := tape.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	defer doc.Release()
	_, paths, err := objectmeta.Clean(doc.Text(doc.Find(tape.Root, "metadata")), true, false)
	if err != nil {
		return nil, err.Error()
	}
	for _, path := range paths {
		unknown = append(unknown, "metadata."+path)
	}
	return unknown, ""
}

// normalize returns a normalized document, or the text of an error.
func normalize(t *testing.T, version servedVersion, data []byte) (schema.NormalizedDoc, string) {
	t.Helper()
	doc, err := tape.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	normalized, err := version.program.Normalize(doc, schema.NormalizeOptions{Unknown: true})
	if err != nil {
		return schema.NormalizedDoc{}, err.Error()
	}
	return normalized, ""
}

// findErrors validates the write and evaluates the rules. It appends to the warnings.
func (s *step) findErrors(t *testing.T, version servedVersion, doc *tape.Doc, warnings *[]string) field.ErrorList {
	var old *tape.Doc
	if s.Old != nil {
		before, problem := normalize(t, version, s.Old)
		if problem != "" {
			t.Fatal(problem)
		}
		old = before.Doc
	}
	report := version.program.Check(doc, old, true, nil)
	if s.Status {
		report = version.program.CheckStatus(doc, old, true, nil)
	}
	errs := report.All()
	if version.rules == nil {
		return errs
	}
	if structural := schema.StructuralError(errs); structural != nil {
		return append(errs, structural)
	}
	return append(errs, version.rules.Evaluate(t.Context(), doc, old, func(w string) { *warnings = append(*warnings, w) }, nil)...)
}

// checkStored checks the warnings and the stored object of an accepted write.
func (s *step) checkStored(t *testing.T, doc *tape.Doc, warnings []string) {
	if !slices.Equal(warnings, s.Warnings) {
		t.Errorf("warnings: got %q, want %q", warnings, s.Warnings)
	}
	got, _ := doc.Any(tape.Root).(map[string]any)
	for _, k := range []string{"metadata", "apiVersion", "kind"} {
		delete(got, k)
	}
	if s.Normalized != nil && canonical(t, got) != canonicalText(t, s.Normalized) {
		t.Errorf("got stored object %s\nwant %s", canonical(t, got), s.Normalized)
	}
	if s.Spec != nil && canonical(t, got["spec"]) != canonicalText(t, s.Spec) {
		t.Errorf("got stored spec %s\nwant %s", canonical(t, got["spec"]), s.Spec)
	}
}

// canonical returns a value as JSON without variable texts.
func canonical(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return replaceVariableTexts(string(data))
}

// canonicalText returns a JSON text like canonical.
func canonicalText(t *testing.T, data []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(canonical(t, value))
}

// variableTexts lists texts that differ in each recording, and their replacements.
var variableTexts = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{pattern: regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), replacement: "<uid>"},
	{pattern: regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), replacement: "<time>"},
	{pattern: regexp.MustCompile(`\b10\.0\.0\.\d+`), replacement: "<cluster-ip>"},
}

// replaceVariableTexts replaces texts that differ in each recording.
func replaceVariableTexts(text string) string {
	for _, variable := range variableTexts {
		text = variable.pattern.ReplaceAllString(text, variable.replacement)
	}
	return text
}

// errorTexts returns the fields and texts of errors, without variable texts.
func errorTexts(errs field.ErrorList) []string {
	out := make([]string, len(errs))
	for i, e := range errs {
		out[i] = replaceVariableTexts(e.Field + ": " + e.ErrorBody())
	}
	return out
}

// definition is a recorded definition with the errors of the reference server.
type definition struct {
	Name     string                `json:"name"`
	Schemas  []*v1.JSONSchemaProps `json:"schemas"`
	Errors   []string              `json:"errors"`
	Message  string                `json:"message"`
	Fields   []string              `json:"fields"`
	Rejected bool                  `json:"refused"`
}

// TestRecordedDefinitionsMatchReferenceServer checks that definitions give the errors of a kube-apiserver about rules
// and defaults.
func TestRecordedDefinitionsMatchReferenceServer(t *testing.T) {
	var recorded []definition
	readJSON(t, "testdata/definitions.json", &recorded)
	for _, crd := range recorded {
		t.Run(crd.Name, func(t *testing.T) {
			var got []string
			var errs field.ErrorList
			for i, schemaProps := range crd.Schemas {
				path := field.NewPath("spec", "validation", "openAPIV3Schema")
				if len(crd.Schemas) > 1 {
					path = field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
				}
				errs = append(errs, checkDefinition(t, path, schemaProps)...)
			}
			got = ruleAndDefaultErrors(errorTexts(errs))
			switch {
			case crd.Message != "":
				if _, want, _ := strings.Cut(crd.Message, " is invalid: "); replaceVariableTexts(errs.ToAggregate().Error()) != want {
					t.Errorf("got %v\nwant %s", errs.ToAggregate(), want)
				}
			case crd.Fields != nil:
				var fields []string
				for _, e := range errs {
					fields = append(fields, e.Field)
				}
				if !slices.Equal(fields, crd.Fields) {
					t.Errorf("got %q, want %q", fields, crd.Fields)
				}
			case crd.Rejected:
				if len(got) == 0 {
					t.Error("the definition has no error about rules or defaults, want one")
				}
			default:
				if want := ruleAndDefaultErrors(crd.Errors); !slices.Equal(got, want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

// ruleAndDefaultErrors returns the errors of the list about rules and defaults, except for errors of
// the structure of schemas, which mention them.
func ruleAndDefaultErrors(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(text string) bool {
		return !strings.Contains(text, "x-kubernetes-validations") && !strings.Contains(text, ".default") ||
			strings.Contains(text, "must be empty to be structural") || strings.Contains(text, "Forbidden: must not be set in top-level") ||
			strings.Contains(text, "so it must have a default") || strings.Contains(text, "must be undefined to be structural")
	})
}

// checkDefinition returns the errors of the rules and defaults of a schema.
func checkDefinition(t *testing.T, path *field.Path, schemaProps *v1.JSONSchemaProps) field.ErrorList {
	for _, reserved := range []string{"metadata", "apiVersion"} {
		if schemaProps.Properties[reserved].Default != nil {
			return nil // rejected before its defaults are checked
		}
	}
	var errs field.ErrorList
	if schemaProps.Type == "object" {
		errs = schema.CheckDefaults(t.Context(), path, schemaProps, true, compiler.CheckDefault)
	}
	found := checkSyntax(path, schemaProps)
	errs = append(errs, found...)
	return append(errs, compiler.CheckSchema(rules.SchemaCheck{Schema: schemaProps, Path: path, KnownErrors: found})...)
}

// checkSyntax returns the errors of the syntax of rules in a schema and its properties.
func checkSyntax(path *field.Path, s *v1.JSONSchemaProps) field.ErrorList {
	errs := rules.CheckSyntax(path, s)
	for name, sub := range s.Properties {
		errs = append(errs, checkSyntax(path.Child("properties").Key(name), &sub)...)
	}
	return errs
}
