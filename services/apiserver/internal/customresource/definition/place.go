package definition

import (
	"strings"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
)

// HasOwnPlace tells whether the objects of a custom resource stand in the store where
// nothing else does. Of the built-in kinds only two are kept below a group with a dot;
// the others, and what the server keeps besides, have no dot where the group is.
func HasOwnPlace(group, resource string) bool {
	if !strings.Contains(group, ".") || resource == "" || strings.Contains(group+resource, "/") {
		return false
	}
	switch resource + "." + group {
	case "customresourcedefinitions." + v1.GroupName, "apiservices.apiregistration.k8s.io":
		return false
	}
	return true
}

// Reason and message of the Terminating condition of a definition that is not Definable.
const (
	overlapReason  = "OverlappingBuiltInResource"
	overlapMessage = "instances overlap with built-in resources in storage"
)
