// Package certificaterequests deletes old certificate signing requests: those that were issued,
// denied or failed more than an hour ago, those that have been pending for more than a day, and
// those whose certificate has expired.
//
// Package app runs a Controller on the leader.
package certificaterequests

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/kubeclient"
)

// Name is the name of the controller in --controllers.
const Name = "certificatesigningrequest-cleaner-controller"

const (
	// interval is the time between two inspections of all requests.
	interval = time.Hour
	// decidedAge is how long issued, denied and failed requests are kept, and pendingAge how long
	// those without a decision.
	decidedAge = time.Hour
	pendingAge = 24 * time.Hour
	// pageSize is how many requests are in memory at a time.
	pageSize = 500
)

// Config configures a Controller.
type Config struct {
	Requests kubeclient.Interface[*certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequestList]
	Log      *slog.Logger
}

// Controller deletes old requests.
type Controller struct{ Config }

// New returns an idle controller.
func New(c Config) *Controller { return &Controller{Config: c} }

// Run inspects all requests now and periodically, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := c.deleteObsolete(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("inspecting certificate signing requests failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// deleteObsolete deletes old certificate signing requests, page by page.
func (c *Controller) deleteObsolete(ctx context.Context) error {
	var errs []error
	err := kubeclient.EachPage(ctx, pageSize, c.Requests.List, func(page *certificatesv1.CertificateSigningRequestList) error {
		for i := range page.Items {
			request := &page.Items[i]
			obsolete, err := isObsolete(request, time.Now())
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", request.Name, err))
			}
			if !obsolete {
				continue
			}
			err = c.Requests.Delete(ctx, request.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &request.UID}})
			if err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("%s: %w", request.Name, err))
			}
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// isObsolete reports whether a request is no longer needed.
func isObsolete(request *certificatesv1.CertificateSigningRequest, now time.Time) (bool, error) {
	// 1. Requests that are old enough, by their state.
	olderThan := func(t metav1.Time, age time.Duration) bool { return !t.IsZero() && now.Sub(t.Time) > age }
	issued := len(request.Status.Certificate) > 0
	approved := false
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved:
			approved = true
			if issued && olderThan(condition.LastUpdateTime, decidedAge) {
				return true, nil
			}
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			if olderThan(condition.LastUpdateTime, decidedAge) {
				return true, nil
			}
		}
	}
	if len(request.Status.Conditions) == 0 {
		return olderThan(request.CreationTimestamp, pendingAge), nil
	}

	// 2. Issued requests whose certificate has expired.
	if !approved || !issued {
		return false, nil
	}
	block, _ := pem.Decode(request.Status.Certificate)
	if block == nil {
		return false, errors.New("the certificate is not PEM encoded")
	}
	certs, err := x509.ParseCertificates(block.Bytes)
	if err != nil {
		return false, fmt.Errorf("parse the certificate: %w", err)
	}
	return len(certs) > 0 && now.After(certs[0].NotAfter), nil
}
