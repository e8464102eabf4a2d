// Package sharedreads shares reads of the store among the requests that need the same result.
//
//	Newest       the newest revision; a caller joins the next read, never a running one
//	HistoryReads values that history has dropped; watchers of the same objects lag by the same amount
//
// Package watchcache reads with both.
package sharedreads
