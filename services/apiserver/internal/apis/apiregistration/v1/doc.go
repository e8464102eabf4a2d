// Package v1 holds the types of apiregistration.k8s.io/v1: an APIService says
// who serves a group version, this server or one behind a service.
//
// Field names, JSON names, protobuf numbers, list types and merge keys are
// those of Kubernetes 1.33. The protobuf form and deep copies come from package
// apitype, the OpenAPI schema from package openapi (which also reads the tags
// listType and listMapKey). The types are used by registry/apiregistration and
// aggregate.
package v1
