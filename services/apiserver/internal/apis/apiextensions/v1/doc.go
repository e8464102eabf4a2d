// Package v1 holds the types of apiextensions.k8s.io/v1: the definition of a
// custom resource, and the review by which a webhook converts its objects.
//
// Field names, JSON names, protobuf numbers, list types and merge keys are
// those of Kubernetes 1.33, so that definitions in etcd can be read by either
// server. The struct tags are all there is: the protobuf form and deep copies
// come from package apitype, the OpenAPI schema from package openapi (which
// also reads the tags listType, listMapKey and mapType). The types are used by
// registry/apiextensions and customresource.
package v1
