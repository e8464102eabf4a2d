package flowcontrol_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// TestSubresourceNamesMatchExactly checks that a rule matches a subresource only if it names it as
// resource/subresource.
func TestSubresourceNamesMatchExactly(t *testing.T) {
	for listed, want := range map[string]bool{
		"pods/log":  true,
		"pods":      false,
		"log":       false,
		"/log":      false,
		"pods/":     false,
		"pods/logs": false,
		"pods-log":  false,
	} {
		schema := newSchema("s", "l", 100, newGroup("g-l")) // newUser adds the group of the level l
		schema.Spec.Rules[0].ResourceRules[0].Resources = []string{listed}
		f := newFixture(t, 100)
		setConfig(f, []*flowcontrolv1.FlowSchema{schema}, newRejectingLevel("l", 95))
		info := &requestinfo.Info{Verb: "get", IsResource: true, Resource: "pods", Subresource: "log"}
		req, class, err := f.Acquire(t.Context(), newUser("a", "l"), info, oneSeat)
		if err != nil {
			t.Fatal(err)
		}
		f.Release(req)
		if matched := class.SchemaUID == schemaUID("s"); matched != want {
			t.Errorf("rule for %q matches pods/log: got %t, want %t", listed, matched, want)
		}
	}
}

// TestServiceAccountSubjectMatchesOnlyAccounts checks that a service account subject matches only service
// accounts, and that a subject without an account matches no user.
func TestServiceAccountSubjectMatchesOnlyAccounts(t *testing.T) {
	serviceAccount := func(namespace, name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{
			Kind:           flowcontrolv1.SubjectKindServiceAccount,
			ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: name},
		}
	}
	for name, test := range map[string]struct {
		subject flowcontrolv1.Subject
		user    string
		want    bool
	}{
		"account of the namespace":                   {subject: serviceAccount("n", "*"), user: "system:serviceaccount:n:a", want: true},
		"user whose name is like that of an account": {subject: serviceAccount("n", "*"), user: "n:a", want: false},
		"user whose name is like the named account":  {subject: serviceAccount("n", "a"), user: "n:a", want: false},
		"subject without an account": {
			subject: flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount},
			user:    "system:serviceaccount::",
			want:    false,
		},
	} {
		f := newFixture(t, 100)
		setConfig(f, []*flowcontrolv1.FlowSchema{newSchema("s", "l", 100, test.subject)}, newRejectingLevel("l", 95))
		req, class, err := f.Acquire(t.Context(), newUser(test.user, "l"), list, oneSeat)
		if err != nil {
			t.Fatal(err)
		}
		f.Release(req)
		if matched := class.SchemaUID == schemaUID("s"); matched != test.want {
			t.Errorf("%s: subject %+v matches user %q: got %t, want %t", name, test.subject, test.user, matched, test.want)
		}
	}
}
