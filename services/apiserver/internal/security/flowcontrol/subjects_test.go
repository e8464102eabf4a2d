package flowcontrol_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// testedSchemaUID is the UID that newSchema gives to the schema "s".
const testedSchemaUID = "of-s"

// TestSubresourceNamesMatchExactly checks that a rule names a subresource as resource/subresource.
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
		s := newSchema("s", "l", 100, newGroup("g-l"))
		s.Spec.Rules[0].ResourceRules[0].Resources = []string{listed}
		f := newFixture(t, 100)
		setConfig(f, []*flowcontrolv1.FlowSchema{s}, newLevel("l", 95, 0, 0, 0))
		info := &requestinfo.Info{Verb: "get", IsResource: true, Resource: "pods", Subresource: "log"}
		request, class, err := f.Acquire(t.Context(), newUser("a", "l"), info, oneSeat)
		if err != nil {
			t.Fatal(err)
		}
		f.Release(request)
		if matched := class.SchemaUID == testedSchemaUID; matched != want {
			t.Errorf("rule for %s matches pods/log: got %t, want %t", listed, matched, want)
		}
	}
}

// TestServiceAccountSubjectMatchesOnlyAccounts checks that a service account subject matches only service accounts,
// and an empty one matches no user.
func TestServiceAccountSubjectMatchesOnlyAccounts(t *testing.T) {
	accounts := func(namespace, name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{
			Kind:           flowcontrolv1.SubjectKindServiceAccount,
			ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: name},
		}
	}
	for _, c := range []struct {
		subject flowcontrolv1.Subject
		user    string
		want    bool
	}{
		{subject: accounts("n", "*"), user: "system:serviceaccount:n:a", want: true},
		{subject: accounts("n", "*"), user: "n:a", want: false},
		{subject: accounts("n", "a"), user: "n:a", want: false},
		{subject: flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount}, user: "system:serviceaccount::", want: false},
	} {
		f := newFixture(t, 100)
		setConfig(f, []*flowcontrolv1.FlowSchema{newSchema("s", "l", 100, c.subject)}, newLevel("l", 95, 0, 0, 0))
		request, class, err := f.Acquire(t.Context(), newUser(c.user, "l"), list, oneSeat)
		if err != nil {
			t.Fatal(err)
		}
		f.Release(request)
		if matched := class.SchemaUID == testedSchemaUID; matched != c.want {
			t.Errorf("%+v matches %s: got %t, want %t", c.subject, c.user, matched, c.want)
		}
	}
}
