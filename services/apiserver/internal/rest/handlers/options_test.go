package handlers

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// TestFieldManagerDefaultsToUserAgent checks that the manager is the requested one, or else the
// printable beginning of the user agent.
func TestFieldManagerDefaultsToUserAgent(t *testing.T) {
	for name, test := range map[string]struct{ requested, agent, want string }{
		"requested manager":              {requested: "me", agent: "kubectl/v1", want: "me"},
		"agent with version":             {agent: "kubectl/v1.33.0 (linux/amd64)", want: "kubectl"},
		"agent without version":          {agent: "no slash", want: "no slash"},
		"no agent":                       {},
		"agent with control characters":  {agent: "a\x01b\u200bc/1", want: "abc"},
		"agent of more than 128 bytes":   {agent: strings.Repeat("x", 200) + "/1", want: strings.Repeat("x", 128)},
		"agent of characters of 2 bytes": {agent: strings.Repeat("ä", 100), want: strings.Repeat("ä", 64)},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["User-Agent"] = []string{test.agent}
		if got := fieldManager(r, test.requested); got != test.want {
			t.Errorf("%s: got manager %q, want %q", name, got, test.want)
		}
	}
}

// TestInvalidRevisionsAreRejected checks the error texts of invalid resource versions, and that
// they repeat only the beginning of a long one.
func TestInvalidRevisionsAreRejected(t *testing.T) {
	for version, want := range map[string]string{
		"x":                         `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`,
		"9223372036854775808":       `resourceVersion: Invalid value: "9223372036854775808": strconv.ParseUint: parsing "9223372036854775808": value out of range`,
		strings.Repeat("9", 500000): `resourceVersion: Invalid value: "` + strings.Repeat("9", maxRevisionInError) + `": strconv.ParseUint: parsing "` + strings.Repeat("9", maxRevisionInError) + `": value out of range`,
	} {
		if _, err := parseRevision(version); err == nil || err.Error() != want {
			t.Errorf("%.20s: got %.200v, want %.200s", version, err, want)
		}
	}
}

// listOptionsError returns the error of the parameters of a list, or nil.
func listOptionsError(query url.Values, coder *codec.KindCodec) error {
	options, err := parseListOptions(&requestinfo.Info{Query: query}, false, false)
	if err != nil {
		return err
	}
	return options.resolveAll(coder, false)
}

// TestSelectorsAreBounded checks that label and field selectors may have 1000 requirements
// together.
func TestSelectorsAreBounded(t *testing.T) {
	repeat := func(requirement string, n int) string { return strings.Repeat(","+requirement, n)[1:] }
	coder := &codec.KindCodec{Kind: &registry.Kind{}}
	for name, test := range map[string]struct {
		label, field string
		isAccepted   bool
	}{
		"1000 labels":                           {label: repeat("a", 1000), isAccepted: true},
		"1001 labels":                           {label: repeat("a", 1001)},
		"one label with 5000 values":            {label: "a in (" + repeat("b", 5000) + ")", isAccepted: true},
		"1001 fields":                           {field: repeat("metadata.name!=a", 1001)},
		"1000 fields with escaped commas":       {field: repeat(`metadata.name!=a\,b`, 1000), isAccepted: true},
		"1000 labels, half with two values":     {label: repeat("a in (b,c),!d", 500), isAccepted: true},
		"1001 labels, the first has two values": {label: "a in (b,c)," + repeat("a", 1000)},
		"600 labels and 600 fields":             {label: repeat("a", 600), field: repeat("metadata.name!=a", 600)},
	} {
		err := listOptionsError(url.Values{"labelSelector": {test.label}, "fieldSelector": {test.field}}, coder)
		if (err == nil) != test.isAccepted || err != nil && !apierrors.IsBadRequest(err) {
			t.Errorf("%s: got error %v, want success: %t, otherwise BadRequest", name, err, test.isAccepted)
		}
	}
}

// TestSelectorsMayNameOnlyKnownFields checks which fields selectors may name, and the errors for all
// other fields.
func TestSelectorsMayNameOnlyKnownFields(t *testing.T) {
	own := registry.Presentation{Selectable: []registry.SelectableField{{Label: "spec.x"}}}
	const builtIn, ownFields = `"spec.y" is not a known field selector: only "metadata.name", "metadata.namespace"`, "field label not supported: spec.y"
	for name, test := range map[string]struct {
		kind registry.Kind
		// mayNameNamespace means that selectors may name the namespace.
		mayNameNamespace bool
		want             string
	}{
		"namespaced": {
			kind:             registry.Kind{Names: registry.Names{Namespaced: true}},
			mayNameNamespace: true,
			want:             builtIn,
		},
		"cluster-scoped":              {kind: registry.Kind{}, mayNameNamespace: true, want: builtIn},
		"cluster-scoped, with fields": {kind: registry.Kind{Presentation: own}, want: ownFields},
		"custom, namespaced": {
			kind:             registry.Kind{Names: registry.Names{Namespaced: true}, Document: &registry.Document{}},
			mayNameNamespace: true,
			want:             ownFields,
		},
		"custom, cluster-scoped": {kind: registry.Kind{Document: &registry.Document{}}, want: ownFields},
		"custom, cluster-scoped, with fields": {
			kind: registry.Kind{Document: &registry.Document{}, Presentation: own},
			want: ownFields,
		},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(selector string) error {
				return listOptionsError(url.Values{"fieldSelector": {selector}}, &codec.KindCodec{Kind: &test.kind})
			}
			if err := read("metadata.namespace=,metadata.name!=x"); (err == nil) != test.mayNameNamespace {
				t.Errorf("metadata.namespace: got error %v, want success: %t", err, test.mayNameNamespace)
			}
			if err := read("spec.y=x"); !apierrors.IsBadRequest(err) || err.Error() != test.want {
				t.Errorf("spec.y: got %v, want %s", err, test.want)
			}
		})
	}
}
