package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// ConversionReview has the request and the response of v1.ConversionReview. It is sent to webhooks
// that support only v1beta1.
type ConversionReview struct {
	metav1.TypeMeta `json:",inline"`

	Request  *v1.ConversionRequest  `json:"request,omitempty"`
	Response *v1.ConversionResponse `json:"response,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *ConversionReview) DeepCopyObject() runtime.Object {
	out := (&v1.ConversionReview{Request: c.Request, Response: c.Response}).DeepCopy()
	return &ConversionReview{TypeMeta: c.TypeMeta, Request: out.Request, Response: out.Response}
}
