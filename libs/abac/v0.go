package abac

import (
	"fmt"

	"binnacle/libs/api"
)

const apiVersionV0 = "abac.authorization.kubernetes.io/v0"

// policyV0 is a policy in the unversioned form. It has the fields of version v0.
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
	var parsed policyV0
	if err := decodeStrictly(line, &parsed); err != nil {
		return Spec{}, err
	}
	if parsed.Kind != "" && parsed.Kind != kind {
		return Spec{}, fmt.Errorf("kind %q: want %s", parsed.Kind, kind)
	}
	spec := Spec{
		User:      parsed.User,
		Group:     parsed.Group,
		Readonly:  parsed.Readonly,
		APIGroup:  wildcard,
		Resource:  parsed.Resource,
		Namespace: parsed.Namespace,
	}
	if parsed.User == "" && parsed.Group == "" || parsed.User == wildcard || parsed.Group == wildcard {
		spec.User = ""
		spec.Group = api.GroupAuthenticated
	}
	if parsed.Namespace == "" && parsed.Resource == "" {
		spec.NonResourcePath = wildcard
	}
	if parsed.Namespace == "" {
		spec.Namespace = wildcard
	}
	if parsed.Resource == "" {
		spec.Resource = wildcard
	}
	return spec, nil
}
