// Package v1 holds the types of apiextensions.k8s.io/v1: CustomResourceDefinition, and
// ConversionReview, the request to a conversion webhook and its response.
//
// Field names, JSON names, protobuf numbers, list types and merge keys are those of Kubernetes
// 1.33, so that either server can read definitions in etcd. No code is generated from the struct
// tags: the protobuf form and deep copies come from package apitype, the OpenAPI schema from
// package openapi (which also reads the tags listType, listMapKey and mapType).
// Packages crd and api/kinds/apiextensions use the types.
package v1
