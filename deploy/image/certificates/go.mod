module sluice-certificates

go 1.24
