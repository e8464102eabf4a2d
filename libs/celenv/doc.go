// Package celenv makes environments for CEL expressions that are written into
// configuration: over the claims and the user of a token, or over a request
// that is to be authorized. The caller names the variables and their types;
// the functions are those that such expressions have in Kubernetes.
//
// An Env and the Programs compiled with it are immutable and safe for
// concurrent use. Evaluation is bounded: by PerCallLimit units of cost in each
// call, by a Budget that several calls share, and by the context's end.
//
// It is used by package authnconfig and by the match conditions of
// authorization webhooks.
package celenv
