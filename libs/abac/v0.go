package abac

import (
	"fmt"

	"binnacle/libs/api"
)

const apiVersionV0 = "abac.authorization.kubernetes.io/v0"

// policyV0 is a policy in the unversioned form, whose fields are those of v0.
type policyV0 struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	User       string `json:"user"`
	Group      string `json:"group"`
	Readonly   bool   `json:"readonly"`
	Resource   string `json:"resource"`
	Namespace  string `json:"namespace"`
}

// parseV0 parses a policy in the unversioned form. In contrast to v1beta1, an unset field matches
// everything: without a user and a group the policy applies to every authenticated user, and
// without a namespace and a resource it also allows all paths.
func parseV0(line []byte) (Spec, error) {
	var p policyV0
	if err := decodeStrictly(line, &p); err != nil {
		return Spec{}, err
	}
	if p.Kind != "" && p.Kind != kind {
		return Spec{}, fmt.Errorf("kind %q: want %s", p.Kind, kind)
	}
	spec := Spec{
		User:      p.User,
		Group:     p.Group,
		Readonly:  p.Readonly,
		APIGroup:  wildcard,
		Resource:  p.Resource,
		Namespace: p.Namespace,
	}
	if p.User == "" && p.Group == "" || p.User == wildcard || p.Group == wildcard {
		spec.User = ""
		spec.Group = api.GroupAuthenticated
	}
	if p.Namespace == "" && p.Resource == "" {
		spec.NonResourcePath = wildcard
	}
	if p.Namespace == "" {
		spec.Namespace = wildcard
	}
	if p.Resource == "" {
		spec.Resource = wildcard
	}
	return spec, nil
}
