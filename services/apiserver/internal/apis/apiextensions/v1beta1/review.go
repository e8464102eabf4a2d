package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
)

// ConversionReview is that of v1, as older webhooks know it.
type ConversionReview struct {
	metav1.TypeMeta `json:",inline"`

	Request  *v1.ConversionRequest  `json:"request,omitempty"`
	Response *v1.ConversionResponse `json:"response,omitempty"`
}

// DeepCopyObject makes the type an object.
func (c *ConversionReview) DeepCopyObject() runtime.Object {
	out := (&v1.ConversionReview{Request: c.Request, Response: c.Response}).DeepCopy()
	return &ConversionReview{TypeMeta: c.TypeMeta, Request: out.Request, Response: out.Response}
}
