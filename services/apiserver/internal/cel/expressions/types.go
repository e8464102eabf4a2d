package expressions

import (
	"maps"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

// Names of the variables.
const (
	object          = "object"
	oldObject       = "oldObject"
	request         = "request"
	namespaceObject = "namespaceObject"
	params          = "params"
	authorizer      = "authorizer"
	requestResource = "authorizer.requestResource"
	variables       = "variables"
)

// variablesType is the type of the variables that a policy declares.
var variablesType = cel.ObjectType("kubernetes.variables")

// types holds the object types of variables, directly or through fields, by name.
type types map[string]map[string]*cel.Type

// Fields implements celenv.TypeFinder.
func (t types) Fields(name string) (map[string]*cel.Type, bool) {
	fields, ok := t[name]
	return fields, ok
}

// commonTypes returns all types of the common variables, and those of request and namespaceObject.
func commonTypes() (all types, requestType, namespaceType *cel.Type) {
	all = types{}
	add := func(name string, fields map[string]*cel.Type) *cel.Type {
		s := celenv.Struct{Name: "kubernetes." + name, Fields: fields}
		all[s.Name] = fields
		return s.Type()
	}
	str := cel.StringType
	stringMap := cel.MapType(cel.StringType, cel.StringType)
	list := cel.ListType(cel.StringType)
	kind := add("GroupVersionKind", map[string]*cel.Type{"group": str, "version": str, "kind": str})
	resource := add("GroupVersionResource", map[string]*cel.Type{"group": str, "version": str, "resource": str})
	user := add("UserInfo", map[string]*cel.Type{
		"username": str, "uid": str, "groups": list, "extra": cel.MapType(cel.StringType, list),
	})
	requestType = add("AdmissionRequest", map[string]*cel.Type{
		"kind": kind, "resource": resource, "subResource": str,
		"requestKind": kind, "requestResource": resource, "requestSubResource": str,
		"name": str, "namespace": str, "operation": str, "userInfo": user, "dryRun": cel.BoolType, "options": cel.DynType,
	})
	condition := add("NamespaceCondition", map[string]*cel.Type{
		"status": str, "type": str, "lastTransitionTime": cel.TimestampType, "message": str, "reason": str,
	})
	namespaceType = add("Namespace", map[string]*cel.Type{
		"metadata": add("NamespaceMetadata", map[string]*cel.Type{
			"name": str, "generateName": str, "namespace": str, "labels": stringMap, "annotations": stringMap, "UID": str,
			"creationTimestamp": cel.TimestampType, "deletionGracePeriodSeconds": cel.IntType, "deletionTimestamp": cel.TimestampType,
			"generation": cel.IntType, "resourceVersion": str, "finalizers": list,
		}),
		"spec":   add("NamespaceSpec", map[string]*cel.Type{"finalizers": list}),
		"status": add("NamespaceStatus", map[string]*cel.Type{"conditions": cel.ListType(condition), "phase": str}),
	})
	return all, requestType, namespaceType
}

// withType returns a copy of t with one more type.
func (t types) withType(name string, fields map[string]*cel.Type) types {
	out := maps.Clone(t)
	out[name] = fields
	return out
}
