"""What moved from night to night."""
