// Package v1 holds the types of apiregistration.k8s.io/v1. An APIService defines the server of a
// group version: this server or one behind a service.
//
// Field names, JSON names, protobuf numbers, list types and merge keys are those of Kubernetes
// 1.33. The protobuf form and deep copies come from package apitype, the OpenAPI schema from
// package openapi (which also reads the tags listType and listMapKey). api/kinds/apiregistration
// and api/aggregation use the types.
package v1
