package comparison

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d| \+0000 UTC( m=[+.0-9]+)?)`)
	// versions are resource versions in messages: a number of at least two digits after one of
	// these words.
	versions = regexp.MustCompile(`(resource ?[vV]ersion|version|too old|current|Current|unexpected|revision|ResourceVersion|in record|in object meta)([ :"=(\\\\]+)\d{2,}`)
	// quotedVersions are the resource versions of objects in messages.
	quotedVersions = regexp.MustCompile(`(resourceVersion(?:\\)*":(?:\\)*")\d+`)
	// schemaTypes are names of types of schemas in messages, with a random suffix.
	schemaTypes = regexp.MustCompile(`selfType[0-9a-f]+`)
	// tooOld matches "too old resource version: 1 (12345)". Only the number in brackets, the oldest
	// version that the server has, differs between runs.
	tooOld    = regexp.MustCompile(`(too old resource version: \S+ )\(\d+\)`)
	addresses = regexp.MustCompile(`\b10\.0\.0\.\d+\b`)
	nodePorts = regexp.MustCompile(`\b3[0-2]\d{3}\b`)
	cellPorts = regexp.MustCompile(`:3[0-2]\d{3}/`)
	// documentHashes identify OpenAPI documents, whose text may differ in the order of members.
	documentHashes = regexp.MustCompile(`hash=[0-9A-F]{64,}`)
	ages           = regexp.MustCompile(`^(\d+[smh])+$`)
	tokenVolumes   = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	pointers       = regexp.MustCompile(`\b0x[0-9a-f]{6,}\b`)
	// quantityTexts are the cached texts of quantities in the syntax of Go.
	quantityTexts = regexp.MustCompile(`s:"[^"]*", Format:`)
	partOfNumber  = regexp.MustCompile(`[-.0-9A-Za-z]`)
	// goBools are values behind pointers in the syntax of Go, where kube-apiserver prints addresses.
	goBools = regexp.MustCompile(`\(\*bool\)\((true|false)\)`)
	// goTimes are times of this year in the syntax of Go.
	goTimes = regexp.MustCompile(`time\.Date\(20\d\d, [^)]*\)`)
	// blanks are written at random by the package that prints differences between objects.
	blanks = regexp.MustCompile(`[ \x{a0}]+`)
	// roleErrors are the reasons of the RBAC authorizer, one for each binding of an absent role, which
	// kube-apiserver reads in the order of a Go map.
	roleErrors = regexp.MustCompile(`RBAC: \[[^\]]*\]`)
	// otherGroups are groups that scenarios define and remove.
	otherGroups = regexp.MustCompile(`^"\w+-\d+.*\.example\.com"$`)
	// recent is how far a time may be from now to be one of this run, which becomes a placeholder.
	// Other times are compared.
	recent = 2 * time.Hour
)

// ignoredHeaders differ between any two responses.
var ignoredHeaders = []string{"Date", "Content-Length", "Transfer-Encoding", "Connection"}

// presentHeaders have random values; only their presence is compared.
var presentHeaders = []string{
	"Audit-Id",
	"Etag",
	"Last-Modified",
	"Process-Start-Time-Unix",
	"X-Kubernetes-Pf-Flowschema-Uid",
	"X-Kubernetes-Pf-Prioritylevel-Uid",
}

// buildFields describe in /version how a server was built.
var buildFields = []string{"buildDate", "gitCommit", "gitTreeState", "goVersion"}

// longestGenerated is the number of bytes of a generateName that the name keeps.
const longestGenerated = 58

// normalize returns the compared parts of a response. Values that differ between any two runs
// become placeholders. A resource version becomes <rv>, or <new rv> if it is newer than the last one
// of the same object, which the session created. So the comparison shows whether a write changed the
// object.
func (s *Session) normalize(resp *http.Response, body any) Answer {
	a := Answer{Status: resp.StatusCode, headers: map[string]string{}}
	for name, values := range resp.Header {
		switch {
		case slices.Contains(ignoredHeaders, name):
		case slices.Contains(presentHeaders, name):
			a.headers[name] = "<present>"
		case name == "Vary": // one field or several, in any order
			names := strings.Split(strings.Join(values, ", "), ", ")
			slices.Sort(names)
			a.headers[name] = strings.Join(names, ", ")
		default:
			a.headers[name] = scrub(strings.Join(values, "\n"), s.Vars)
		}
	}
	a.body = s.normalizeTree(body)
	return a
}

// scrub replaces the parts of a text that differ between runs. The order matters: uids and versions
// are replaced before the variables, whose values may be parts of them.
func scrub(s string, vars map[string]string) string {
	s = uuids.ReplaceAllString(s, "<uid>")
	s = tooOld.ReplaceAllString(s, "$1(<rv>)")
	s = versions.ReplaceAllString(s, "$1$2<rv>")
	s = quotedVersions.ReplaceAllString(s, "$1<rv>")
	s = schemaTypes.ReplaceAllString(s, "selfType")
	s = times.ReplaceAllStringFunc(s, func(text string) string {
		at, err := time.Parse(time.RFC3339, text)
		if err == nil && time.Since(at).Abs() > recent {
			return text
		}
		if strings.Contains(text, ".") {
			return "<microtime>"
		}
		return "<time>"
	})
	for k, v := range vars {
		if len(v) > 3 {
			s = replaceVariable(s, v, "{"+k+"}")
		}
	}
	s = quantityTexts.ReplaceAllString(s, `s:"<cached>", Format:`)
	s = pointers.ReplaceAllString(goBools.ReplaceAllString(s, "(*bool)(<pointer>)"), "<pointer>")
	s = goTimes.ReplaceAllString(s, "<time>")
	s = blanks.ReplaceAllString(s, " ")
	s = tokenVolumes.ReplaceAllString(s, "kube-api-access-<random>")
	s = documentHashes.ReplaceAllString(s, "hash=<hash>")
	s = roleErrors.ReplaceAllStringFunc(s, func(list string) string {
		reasons := strings.Split(strings.TrimSuffix(strings.TrimPrefix(list, "RBAC: ["), "]"), ", ")
		slices.Sort(reasons)
		return "RBAC: [" + strings.Join(reasons, ", ") + "]"
	})
	if strings.Contains(s, "odePort") { // nodePort and healthCheckNodePort
		s = nodePorts.ReplaceAllString(s, "<node port>")
	}
	s = addresses.ReplaceAllString(s, "<cluster-ip>")
	return s
}

// replaceVariable replaces the value of a variable. It does not replace a number that is a part of a
// longer number or of a time.
func replaceVariable(s, value, placeholder string) string {
	if strings.Trim(value, "0123456789") != "" {
		return strings.ReplaceAll(s, value, placeholder)
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, value)
		if !found {
			break
		}
		b.WriteString(before)
		if partOfNumber.MatchString(before[max(len(before)-1, 0):]) || partOfNumber.MatchString(after[:min(len(after), 1)]) {
			b.WriteString(value)
		} else {
			b.WriteString(placeholder)
		}
		s = after
	}
	b.WriteString(s)
	return b.String()
}

// follow records the version of an object that the session created, so that version can recognize
// newer ones. It ignores kinds that controllers of the servers change at any time.
func (s *Session) follow(body any) {
	uid, _ := Lookup(body, "metadata.uid").(string)
	if kind := Lookup(body, "kind"); uid == "" || kind == "CustomResourceDefinition" || kind == "APIService" {
		return
	}
	version, _ := Lookup(body, "metadata.resourceVersion").(string)
	if n, err := strconv.ParseInt(version, 10, 64); err == nil {
		s.versions[uid] = n
	}
}

// version returns the placeholder of a resource version: <new rv> if it is newer than the last one of
// the object with that uid, which it then replaces, otherwise <rv>. It returns <rv> also for lists,
// for objects that follow has not recorded, and for an older version, which came from a cache.
func (s *Session) version(uid, version string) string {
	last, followed := s.versions[uid]
	n, err := strconv.ParseInt(version, 10, 64)
	if !followed || err != nil || n <= last {
		return "<rv>"
	}
	s.versions[uid] = n
	return "<new rv>"
}

// normalizeTree replaces values that differ between runs by placeholders.
func (s *Session) normalizeTree(v any) any {
	switch t := v.(type) {
	case map[string]any:
		s.normalizeMembers(t)
		if items, ok := t["items"].([]any); ok && t["kind"] == "APIGroupDiscoveryList" {
			t["items"] = slices.DeleteFunc(items, func(item any) bool { // groups of other scenarios
				return otherGroups.MatchString(JSONText(Lookup(item, "metadata.name")))
			})
		}
		sortUnordered(t)
		if cells, ok := t["cells"].([]any); ok {
			for i, c := range cells {
				if s, ok := c.(string); ok {
					cells[i] = ages.ReplaceAllString(cellPorts.ReplaceAllString(s, ":<node port>/"), "<age>")
				}
			}
		}
	case []any:
		for i := range t {
			t[i] = s.normalizeTree(t[i])
		}
	case string:
		if strings.HasPrefix(t, "# HELP") {
			return "<metrics>"
		}
		if s.generated != nil {
			t = s.generated.ReplaceAllString(t, "<generated>")
		}
		return scrub(t, s.Vars)
	}
	return v
}

// normalizeMembers replaces the values of the members of an object.
func (s *Session) normalizeMembers(t map[string]any) {
	generated, _ := t["generateName"].(string)
	uid, _ := t["uid"].(string)
	for _, k := range slices.Collect(maps.Keys(t)) { // field ownership has uids in its keys
		if uuids.MatchString(k) {
			t[uuids.ReplaceAllString(k, "<uid>")] = t[k]
			delete(t, k)
		}
	}
	// The order is fixed, because s.version remembers the versions that it has seen before.
	for _, k := range slices.Sorted(maps.Keys(t)) {
		x := t[k]
		text, isText := x.(string)
		switch {
		case isText && k == "resourceVersion" && text != "" && text != "0":
			t[k] = s.version(uid, text)
		case slices.Contains(buildFields, k):
			t[k] = "<build>"
		case isText && k == "continue" && text != "":
			t[k] = "<continue>"
		case isText && k == "uid" && uuids.MatchString(text):
			t[k] = "<uid>"
		case isText && k == "token" && len(text) > 40:
			t[k] = "<token>"
		case isText && k == "name" && generated != "" && strings.HasPrefix(text, generated[:min(len(generated), longestGenerated)]):
			t[k] = generated + "<random>"
		case k == "resourceRules" || k == "nonResourceRules": // in random order
			rules, _ := s.normalizeTree(x).([]any)
			slices.SortFunc(rules, compareJSON)
			t[k] = rules
		case k == "nodePort" || k == "healthCheckNodePort":
			t[k] = json.Number(nodePorts.ReplaceAllString(JSONText(x), "0"))
		default:
			t[k] = s.normalizeTree(x)
		}
	}
}

// sortUnordered sorts the lists of an object that the servers return in any order.
func sortUnordered(t map[string]any) {
	if resources, ok := t["resources"].([]any); ok && t["kind"] == "APIResourceList" { // in random order, if custom
		slices.SortStableFunc(resources, compareJSON)
	}
	if conditions, ok := Lookup(t, "status.conditions").([]any); ok && t["kind"] == "CustomResourceDefinition" { // controllers race
		slices.SortStableFunc(conditions, func(a, b any) int { return compareJSON(Lookup(a, "type"), Lookup(b, "type")) })
	}
	if m, ok := t["managedFields"].([]any); ok {
		slices.SortStableFunc(m, compareJSON)
	}
}

// compareJSON compares the JSON of two values.
func compareJSON(a, b any) int { return strings.Compare(JSONText(a), JSONText(b)) }
