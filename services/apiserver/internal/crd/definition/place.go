package definition

import (
	"strings"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// HasOwnPlace reports whether the objects of a custom resource have a key prefix in the store that
// nothing else shares. Only two built-in kinds are stored below a group with a dot. The keys of
// other built-in kinds, and other keys of the server, have no dot in the position of the group.
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
