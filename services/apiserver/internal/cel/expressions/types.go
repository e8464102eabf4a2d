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

// variablesType is the type of the variable variables, an object with a field for each variable
// that a policy declares.
var variablesType = cel.ObjectType("kubernetes.variables")

// types maps the name of an object type to the types of its fields. It implements
// celenv.TypeFinder.
type types map[string]map[string]*cel.Type

// Fields implements celenv.TypeFinder.
func (t types) Fields(name string) (map[string]*cel.Type, bool) {
	fields, ok := t[name]
	return fields, ok
}

// commonTypes returns the types of the variables request and namespaceObject, and all object types
// that they contain.
func commonTypes() (all types, requestType, namespaceType *cel.Type) {
	all = types{}
	addType := func(name string, fields map[string]*cel.Type) *cel.Type {
		s := celenv.Struct{Name: "kubernetes." + name, Fields: fields}
		all[s.Name] = fields
		return s.Type()
	}
	str := cel.StringType
	stringMap := cel.MapType(cel.StringType, cel.StringType)
	list := cel.ListType(cel.StringType)
	kind := addType("GroupVersionKind", map[string]*cel.Type{"group": str, "version": str, "kind": str})
	resource := addType("GroupVersionResource", map[string]*cel.Type{"group": str, "version": str, "resource": str})
	user := addType("UserInfo", map[string]*cel.Type{
		"username": str, "uid": str, "groups": list, "extra": cel.MapType(cel.StringType, list),
	})
	requestType = addType("AdmissionRequest", map[string]*cel.Type{
		"kind": kind, "resource": resource, "subResource": str,
		"requestKind": kind, "requestResource": resource, "requestSubResource": str,
		"name": str, "namespace": str, "operation": str, "userInfo": user, "dryRun": cel.BoolType, "options": cel.DynType,
	})
	condition := addType("NamespaceCondition", map[string]*cel.Type{
		"status": str, "type": str, "lastTransitionTime": cel.TimestampType, "message": str, "reason": str,
	})
	namespaceType = addType("Namespace", map[string]*cel.Type{
		"metadata": addType("NamespaceMetadata", map[string]*cel.Type{
			"name": str, "generateName": str, "namespace": str, "labels": stringMap, "annotations": stringMap, "UID": str,
			"creationTimestamp": cel.TimestampType, "deletionGracePeriodSeconds": cel.IntType, "deletionTimestamp": cel.TimestampType,
			"generation": cel.IntType, "resourceVersion": str, "finalizers": list,
		}),
		"spec":   addType("NamespaceSpec", map[string]*cel.Type{"finalizers": list}),
		"status": addType("NamespaceStatus", map[string]*cel.Type{"conditions": cel.ListType(condition), "phase": str}),
	})
	return all, requestType, namespaceType
}

// withType returns a copy of t with one more type.
func (t types) withType(name string, fields map[string]*cel.Type) types {
	out := maps.Clone(t)
	out[name] = fields
	return out
}
