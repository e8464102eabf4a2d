// Package faults changes valid objects so that servers reject most of them.
package faults
